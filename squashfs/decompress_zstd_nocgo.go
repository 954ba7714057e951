//go:build !cgo

package squashfs

func unpackZstd(dst, src []byte) (int, error) { return unpackZstdGo(dst, src) }
