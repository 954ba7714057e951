package fs

import "strconv"

// Opcodes of the FUSE protocol (include/uapi/linux/fuse.h) that a transport must know to choose who handles a request
// and how large the answer may be; the rest is go-fuse's.
const (
	opLookup        = 1
	opForget        = 2
	opGetattr       = 3
	opSetattr       = 4
	opReadlink      = 5
	opSymlink       = 6
	opMknod         = 8
	opMkdir         = 9
	opUnlink        = 10
	opRmdir         = 11
	opRename        = 12
	opLink          = 13
	opRead          = 15
	opWrite         = 16
	opFsync         = 20
	opSetxattr      = 21
	opGetxattr      = 22
	opListxattr     = 23
	opRemovexattr   = 24
	opInit          = 26
	opReaddir       = 28
	opFsyncdir      = 30
	opCreate        = 35
	opInterrupt     = 36
	opDestroy       = 38
	opIoctl         = 39
	opNotifyReply   = 41
	opBatchForget   = 42
	opFallocate     = 43
	opReaddirplus   = 44
	opRename2       = 45
	opCopyFileRange = 47
	opSyncfs        = 50
	opTmpfile       = 51

	opCopyFileRange64 = 53

	opcodes = 64 // more than the protocol has
)

// opNames is in the order of the numbers; the gaps are the protocol's.
var opNames = [opcodes]string{
	opLookup: "LOOKUP", opForget: "FORGET", opGetattr: "GETATTR", opSetattr: "SETATTR", opReadlink: "READLINK", 6: "SYMLINK", 8: "MKNOD", 9: "MKDIR",
	10: "UNLINK", 11: "RMDIR", 12: "RENAME", 13: "LINK", 14: "OPEN", opRead: "READ", opWrite: "WRITE", 17: "STATFS",
	18: "RELEASE", opFsync: "FSYNC", 21: "SETXATTR", opGetxattr: "GETXATTR", opListxattr: "LISTXATTR",
	24: "REMOVEXATTR", 25: "FLUSH", 26: "INIT", 27: "OPENDIR", opReaddir: "READDIR", 29: "RELEASEDIR",
	opFsyncdir: "FSYNCDIR", 31: "GETLK", 32: "SETLK", 33: "SETLKW", 34: "ACCESS", 35: "CREATE", opInterrupt: "INTERRUPT",
	37: "BMAP", 38: "DESTROY", opIoctl: "IOCTL", 40: "POLL", opNotifyReply: "NOTIFY_REPLY", opBatchForget: "BATCH_FORGET",
	opFallocate: "FALLOCATE", opReaddirplus: "READDIRPLUS", 45: "RENAME2", 46: "LSEEK",
	opCopyFileRange: "COPY_FILE_RANGE", 50: "SYNCFS", 51: "TMPFILE", 52: "STATX", 53: "COPY_FILE_RANGE_64",
}

func opName(op uint32) string {
	if op < opcodes && opNames[op] != "" {
		return opNames[op]
	}
	return "OP_" + strconv.FormatUint(uint64(op), 10)
}
