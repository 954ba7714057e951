package squashfs

import "golang.org/x/sys/unix"

// Inode is one parsed inode, immutable and safe for concurrent use.
type Inode struct {
	im   *Image
	ref  Ref
	raw  rawInode // target aside, see Readlink
	attr Attr

	rest position // behind the fixed part: a file's block list, a directory's index

	blocks lazy[[]blockMark] // of a file
}

// Inode parses the inode at ref.
func (im *Image) Inode(ref Ref) (*Inode, error) {
	n := new(Inode)
	if err := im.Load(n, ref); err != nil {
		return nil, err
	}
	return n, nil
}

// Load is Inode that uses the caller's memory, whatever its contents.
func (im *Image) Load(n *Inode, ref Ref) error {
	if err := im.load(n, ref); err != nil {
		return err
	}
	return im.extend(n)
}

// load is Load without the data of the extension section.
func (im *Image) load(n *Inode, ref Ref) error {
	err := im.parse(n, ref)
	if err != nil {
		return err
	}
	if err := n.check(); err != nil {
		return err
	}
	raw := &n.raw
	n.attr = Attr{
		Ino:   uint64(raw.number),
		Mode:  fileType(raw.typ) | uint32(raw.mode&0o7777),
		Nlink: raw.nlink,
		Size:  int64(raw.size),
		Mtime: Time{Sec: int64(raw.mtime)},
	}
	n.attr.Ctime = n.attr.Mtime
	if n.attr.UID, err = im.owner(raw.uid); err != nil {
		return err
	}
	if n.attr.GID, err = im.owner(raw.gid); err != nil {
		return err
	}
	if t := raw.basic(); t == typeBlockDev || t == typeCharDev {
		n.attr.Rdev = decodeDev(raw.rdev)
	}
	return nil
}

// parse reads an inode without checking it.
func (im *Image) parse(n *Inode, ref Ref) error {
	if ref.block() > uint64(im.inodes.end-im.inodes.start) || ref.offset() >= metadataSize {
		return corrupt(im.inodes.start, "inode reference %#x outside the inode table", uint64(ref))
	}
	at := position{im.inodes.start + int64(ref.block()), ref.offset()}
	c, err := im.cursor(im.inodes, at)
	if err != nil {
		return err
	}
	*n = Inode{im: im, ref: ref}
	if err := n.raw.decode(c.take); err != nil {
		return locate(at.at, err)
	}
	n.rest = c.position()
	return nil
}

// check verifies what can be verified without further reads.
func (n *Inode) check() error {
	raw, at := &n.raw, n.location()
	if raw.number == 0 || raw.number > n.im.sb.inodes {
		return corrupt(at, "inode number %d of %d", raw.number, n.im.sb.inodes)
	}
	switch raw.basic() {
	case typeFile:
		if raw.size > 1<<63-1 {
			return corrupt(at, "file of %d bytes", raw.size)
		}
		if raw.start > n.im.sb.bytesUsed {
			return corrupt(at, "file contents at %d, outside the image", raw.start)
		}
		if raw.fragment == noFragment {
			return nil
		}
		if uint64(raw.fragment) >= n.im.fragments.count {
			return corrupt(at, "fragment %d of %d", raw.fragment, n.im.fragments.count)
		}
		if bs := uint64(n.im.sb.blockSize); uint64(raw.offset)+raw.size%bs > bs {
			return corrupt(at, "tail of %d bytes at %d of a fragment", raw.size%bs, raw.offset)
		}
	case typeDir:
		if raw.offset >= metadataSize {
			return corrupt(at, "directory listing at byte %d of a metadata block", raw.offset)
		}
		if raw.start > uint64(n.im.dirs.end-n.im.dirs.start) {
			return corrupt(at, "directory listing at %d, outside the directory table", raw.start)
		}
	}
	return nil
}

// location is the inode's metadata block in the image, for errors.
func (n *Inode) location() int64 { return n.im.inodes.start + int64(n.ref.block()) }

// Ref is the location of the inode in the inode table.
func (n *Inode) Ref() Ref { return n.ref }

// Number is the squashfs inode number, which Export takes. Attr's Ino may differ.
func (n *Inode) Number() uint32 { return n.raw.number }

// Attr returns the inode's attributes.
func (n *Inode) Attr() Attr { return n.attr }

// Readlink returns a symlink's target; unix.EINVAL if the inode is not a symlink.
func (n *Inode) Readlink() (string, error) {
	if n.raw.basic() != typeSymlink {
		return "", unix.EINVAL
	}
	return string(n.raw.target), nil
}
