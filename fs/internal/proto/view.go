package proto

import (
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Sizes of the headers of requests and answers, struct fuse_in_header and fuse_out_header, in bytes.
const (
	InHeaderSize  = int(unsafe.Sizeof(fuse.InHeader{}))
	OutHeaderSize = int(unsafe.Sizeof(fuse.OutHeader{}))
)

// View gives bytes as a structure of the protocol. They must be aligned, as the buffers of transports are, and large
// enough.
func View[T any](b []byte) *T { return (*T)(unsafe.Pointer(unsafe.SliceData(b))) }

// Header is the header of a request.
func Header(req []byte) *fuse.InHeader { return View[fuse.InHeader](req) }
