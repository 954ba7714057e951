package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/layers"
)

// OpenDir is declined once; the kernel then caches listings until it changes the directory itself.
func (a *adapter) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	return fuse.ENOSYS
}

// ReadDir lists names.
func (a *adapter) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return a.status(a.o.ReadDir(layers.NodeID(in.NodeId), in.Offset, func(d layers.DirEntry) bool {
		return out.AddDirEntry(dirEntry(d))
	}))
}

// ReadDirPlus lists names with their entries: the kernel asks for it when it expects a stat of each.
func (a *adapter) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	defer a.grown()
	node := layers.NodeID(in.NodeId)
	given := listed(a.requests.At(in.InHeader.Padding))
	defer func() { a.o.ForgetTwice(given.twice()) }()
	return a.status(a.o.ReadDirPlus(node, in.Offset, func(d layers.DirEntry, ent layers.Entry) bool {
		e := out.AddDirLookupEntry(dirEntry(d))
		if e == nil {
			return false
		}
		if ent.Node != 0 { // else a name without entry: the kernel knows ".", and asks for what vanished
			putEntry(e, &ent)
			given.add(ent.Node)
		}
		return true
	}))
}

// FsyncDir makes a directory durable.
func (a *adapter) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return a.status(a.o.Fsync(layers.NodeID(in.NodeId), in.FsyncFlags&fsyncDataOnly != 0))
}

func dirEntry(d layers.DirEntry) fuse.DirEntry {
	return fuse.DirEntry{Name: d.Name, Ino: d.Ino, Mode: d.Mode, Off: d.Cookie}
}
