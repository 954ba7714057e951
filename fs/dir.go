package fs

import (
	"unsafe"

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
	dir := layers.NodeID(in.NodeId)
	list, _ := a.lists.Get().(*[]layers.DirEntry)
	defer func() {
		clear(*list)
		*list = (*list)[:0]
		a.lists.Put(list)
	}()
	// Look-ups come after the listing: they must not run inside it.
	room := int(in.Size)
	err := a.o.ReadDir(dir, in.Offset, func(d layers.DirEntry) bool {
		if room -= plusSize(d.Name); room < 0 {
			return false
		}
		*list = append(*list, d)
		return true
	})
	if err != nil {
		return a.status(err)
	}
	for _, d := range *list {
		e := out.AddDirLookupEntry(dirEntry(d))
		if e == nil {
			break
		}
		if d.Name == "." || d.Name == ".." {
			continue // node 0: a name without entry, the kernel knows these two
		}
		// A name that vanished meanwhile stays in the listing without entry.
		if ent, err := a.o.Lookup(dir, d.Name); err == nil {
			putEntry(e, &ent)
		}
	}
	return fuse.OK
}

// plusSize is what a name takes in a READDIRPLUS answer: struct fuse_direntplus and the name, padded to 8 bytes.
func plusSize(name string) int { return int(unsafe.Sizeof(fuse.EntryOut{})) + 24 + (len(name)+7)&^7 }

// FsyncDir makes a directory durable.
func (a *adapter) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return a.status(a.o.Fsync(layers.NodeID(in.NodeId), in.FsyncFlags&fsyncDataOnly != 0))
}

func dirEntry(d layers.DirEntry) fuse.DirEntry {
	return fuse.DirEntry{Name: d.Name, Ino: d.Ino, Mode: d.Mode, Off: d.Cookie}
}
