// Package proto is what snapfs itself must know of the FUSE protocol (include/uapi/linux/fuse.h): opcodes and their
// names, codes of notifications, and views of messages in memory. The rest is go-fuse's.
package proto
