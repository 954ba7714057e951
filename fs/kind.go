package fs

// kind is what a request may wait for, and so whom it may hold up.
type kind uint8

const (
	looking  kind = iota // reads: a cold or broken disk
	changing             // changes: the overlay's gate, a full or frozen host, a copy-up
	syncing              // makes durable: a slow disk; not the gate
	prompt               // waits for nothing, or nobody waits for it: never given away
)

// lines is how many kinds may wait.
const lines = int(prompt)

// kinds is in the order of the opcodes; what is not named reads.
var kinds = [opcodes]kind{
	opForget: prompt, opBatchForget: prompt, opInterrupt: prompt, opNotifyReply: prompt, opInit: prompt, opDestroy: prompt,
	opFsync: syncing, opFsyncdir: syncing, opSyncfs: syncing,
	opSetattr: changing, opSymlink: changing, opMknod: changing, opMkdir: changing, opUnlink: changing, opRmdir: changing,
	opRename: changing, opLink: changing, opWrite: changing, opSetxattr: changing, opRemovexattr: changing, opCreate: changing,
	opIoctl: changing, opFallocate: changing, opRename2: changing, opCopyFileRange: changing, opTmpfile: changing, opCopyFileRange64: changing,
}

func kindOf(op uint32) kind {
	if op < opcodes {
		return kinds[op]
	}
	return looking
}

// gated is a file system that at times holds changes back: a seal, a rollback, a pause.
type gated interface {
	// held says whether a change would wait now.
	held() bool
	// whenOpen has f called when changes go on, until stop is called.
	whenOpen(f func()) (stop func())
}

func (a *adapter) held() bool                      { return a.o.Held() }
func (a *adapter) whenOpen(f func()) (stop func()) { return a.o.WhenOpen(f) }
