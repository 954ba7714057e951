package transport

import "snapfs/fs/internal/proto"

// kind is what a request may wait for, and so which others it may hold up.
type kind uint8

const (
	reading  kind = iota // reads: a cold or broken disk
	changing             // changes: the gate, a full or frozen host, a copy-up
	syncing              // makes durable: a slow disk; not the gate
	prompt               // waits for nothing, or no program waits for it: handled by the thread that read it
)

// waitingKinds is how many kinds may wait.
const waitingKinds = int(prompt)

// kinds is in the order of the opcodes; what is not named reads.
var kinds = [proto.Opcodes]kind{
	proto.OpForget: prompt, proto.OpBatchForget: prompt, proto.OpInterrupt: prompt,
	proto.OpNotifyReply: prompt, proto.OpInit: prompt, proto.OpDestroy: prompt,

	proto.OpFsync: syncing, proto.OpFsyncdir: syncing, proto.OpSyncfs: syncing,

	proto.OpSymlink: changing, proto.OpMknod: changing, proto.OpMkdir: changing, proto.OpCreate: changing,
	proto.OpTmpfile: changing, proto.OpLink: changing, proto.OpUnlink: changing, proto.OpRmdir: changing,
	proto.OpRename: changing, proto.OpRename2: changing, proto.OpSetattr: changing, proto.OpWrite: changing,
	proto.OpFallocate: changing, proto.OpCopyFileRange: changing, proto.OpCopyFileRange64: changing,
	proto.OpSetxattr: changing, proto.OpRemovexattr: changing, proto.OpIoctl: changing,
}

func kindOf(op uint32) kind {
	if op < proto.Opcodes {
		return kinds[op]
	}
	return reading
}

// Gate is a file system that at times holds changes back: a seal, a rollback, a pause.
type Gate interface {
	// Held reports whether a change would wait now.
	Held() bool
	// WhenOpen has f called when changes go on, until stop is called.
	WhenOpen(f func()) (stop func())
}
