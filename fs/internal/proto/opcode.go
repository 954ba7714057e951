package proto

import "strconv"

// The opcodes by which snapfs chooses who handles a request, how large the answer may be, and what needs no protocol
// server (enum fuse_opcode).
const (
	OpLookup        = 1
	OpForget        = 2
	OpGetattr       = 3
	OpSetattr       = 4
	OpReadlink      = 5
	OpSymlink       = 6
	OpMknod         = 8
	OpMkdir         = 9
	OpUnlink        = 10
	OpRmdir         = 11
	OpRename        = 12
	OpLink          = 13
	OpRead          = 15
	OpWrite         = 16
	OpFsync         = 20
	OpSetxattr      = 21
	OpGetxattr      = 22
	OpListxattr     = 23
	OpRemovexattr   = 24
	OpInit          = 26
	OpReaddir       = 28
	OpFsyncdir      = 30
	OpCreate        = 35
	OpInterrupt     = 36
	OpDestroy       = 38
	OpIoctl         = 39
	OpNotifyReply   = 41
	OpBatchForget   = 42
	OpFallocate     = 43
	OpReaddirplus   = 44
	OpRename2       = 45
	OpCopyFileRange = 47
	OpSyncfs        = 50
	OpTmpfile       = 51

	OpCopyFileRange64 = 53

	Opcodes = 64 // more than the protocol has
)

// names is in the order of the numbers; the gaps are the protocol's.
var names = [Opcodes]string{
	OpLookup: "LOOKUP", OpForget: "FORGET", OpGetattr: "GETATTR", OpSetattr: "SETATTR", OpReadlink: "READLINK",
	6: "SYMLINK", 8: "MKNOD", 9: "MKDIR", 10: "UNLINK", 11: "RMDIR", 12: "RENAME", 13: "LINK", 14: "OPEN",
	OpRead: "READ", OpWrite: "WRITE", 17: "STATFS", 18: "RELEASE", OpFsync: "FSYNC", 21: "SETXATTR",
	OpGetxattr: "GETXATTR", OpListxattr: "LISTXATTR", 24: "REMOVEXATTR", 25: "FLUSH", 26: "INIT", 27: "OPENDIR",
	OpReaddir: "READDIR", 29: "RELEASEDIR", OpFsyncdir: "FSYNCDIR", 31: "GETLK", 32: "SETLK", 33: "SETLKW",
	34: "ACCESS", 35: "CREATE", OpInterrupt: "INTERRUPT", 37: "BMAP", 38: "DESTROY", OpIoctl: "IOCTL", 40: "POLL",
	OpNotifyReply: "NOTIFY_REPLY", OpBatchForget: "BATCH_FORGET", OpFallocate: "FALLOCATE",
	OpReaddirplus: "READDIRPLUS", 45: "RENAME2", 46: "LSEEK", OpCopyFileRange: "COPY_FILE_RANGE", 50: "SYNCFS",
	51: "TMPFILE", 52: "STATX", 53: "COPY_FILE_RANGE_64",
}

// Name is the protocol's name of an opcode.
func Name(op uint32) string {
	if op < Opcodes && names[op] != "" {
		return names[op]
	}
	return "OP_" + strconv.FormatUint(uint64(op), 10)
}
