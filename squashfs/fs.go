package squashfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symlinks a path may contain, as in Linux.
const maxLinks = 40

// FS presents the image as an io/fs file system (also ReadLinkFS, StatFS, ReadDirFS and ReadFileFS; FileInfo.Sys
// returns *Inode). Symlinks are followed inside the image; absolute ones start at its root. A directory that contains
// itself or has two names is an error of class ErrCorrupt, so that a walk ends. It is safe for concurrent use.
func (im *Image) FS() fs.FS { return imageFS{im} }

type imageFS struct{ im *Image }

var (
	_ fs.ReadLinkFS = imageFS{}
	_ fs.StatFS     = imageFS{}
	_ fs.ReadDirFS  = imageFS{}
	_ fs.ReadFileFS = imageFS{}
)

// Open opens a file or directory. Other inodes have only what Stat returns.
func (f imageFS) Open(name string) (fs.File, error) {
	n, err := f.find("open", name, true)
	if err != nil {
		return nil, err
	}
	info := fileInfo{path.Base(name), n}
	if n.raw.basic() == typeDir {
		return &openDir{fileInfo: info}, nil
	}
	return &openFile{fileInfo: info, SectionReader: io.NewSectionReader(n, 0, n.attr.Size)}, nil
}

// Stat follows symlinks.
func (f imageFS) Stat(name string) (fs.FileInfo, error) {
	n, err := f.find("stat", name, true)
	if err != nil {
		return nil, err
	}
	return fileInfo{path.Base(name), n}, nil
}

// Lstat does not follow a symlink in the last place.
func (f imageFS) Lstat(name string) (fs.FileInfo, error) {
	n, err := f.find("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return fileInfo{path.Base(name), n}, nil
}

// ReadLink returns a symlink's target.
func (f imageFS) ReadLink(name string) (string, error) {
	n, err := f.find("readlink", name, false)
	if err != nil {
		return "", err
	}
	target, err := n.Readlink()
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return target, nil
}

// ReadDir lists a directory in byte order.
func (f imageFS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := f.find("readdir", name, true)
	if err != nil {
		return nil, err
	}
	d := openDir{fileInfo: fileInfo{path.Base(name), n}}
	list, err := d.ReadDir(-1)
	if err != nil {
		return list, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return list, nil
}

// ReadFile reads a whole file. Its memory grows with what can be read, not with the size that the inode claims.
func (f imageFS) ReadFile(name string) ([]byte, error) {
	n, err := f.find("read", name, true)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(n, 0, n.attr.Size))
	if err != nil {
		return b, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return b, nil
}

// find resolves a path. A symlink in the last element is followed or not.
func (f imageFS) find(op, name string, follow bool) (*Inode, error) {
	if !validPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, err := f.im.resolve(name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

// validPath is fs.ValidPath without the requirement of UTF-8: Linux names are bytes, and a walk must get past them.
func validPath(name string) bool { return fs.ValidPath(strings.ToValidUTF8(name, "?")) }

// resolve walks a slash-separated path from the root.
func (im *Image) resolve(name string, follow bool) (*Inode, error) {
	root, err := im.Inode(im.Root())
	if err != nil {
		return nil, err
	}
	if root.raw.basic() != typeDir {
		return nil, corrupt(root.location(), "root is no directory")
	}
	chain := []*Inode{root} // from the root to where the walk is
	links := 0
	for rest := name; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		switch part {
		case "", ".":
			continue
		case "..":
			chain = chain[:max(len(chain)-1, 1)]
			continue
		}
		n, err := im.step(chain, part)
		if err != nil {
			return nil, err
		}
		if n.raw.basic() != typeSymlink || !follow && strings.Trim(rest, "/") == "" {
			chain = append(chain, n)
			continue
		}
		if links++; links > maxLinks {
			return nil, unix.ELOOP
		}
		target := string(n.raw.target)
		if strings.HasPrefix(target, "/") {
			chain = chain[:1]
		}
		rest = target + "/" + rest
		if len(rest) > 2*maxSymlinkTarget {
			return nil, unix.ENAMETOOLONG
		}
	}
	return chain[len(chain)-1], nil
}

// step looks up a name in the last directory of a chain. A directory must not be one of the chain, and its parent must
// be the directory in which it is found.
func (im *Image) step(chain []*Inode, name string) (*Inode, error) {
	dir := chain[len(chain)-1]
	e, err := dir.Lookup(name)
	if err != nil {
		return nil, err
	}
	n, err := im.Inode(e.Ref)
	if err != nil {
		return nil, err
	}
	if n.attr.Mode&unix.S_IFMT != e.Mode {
		return nil, corrupt(n.location(), "entry %q is of another type than its inode", name)
	}
	if n.raw.basic() != typeDir {
		return n, nil
	}
	for _, above := range chain {
		if above.ref == n.ref {
			return nil, corrupt(n.location(), "directory %q contains itself", name)
		}
	}
	if n.raw.parent != dir.raw.number {
		return nil, corrupt(n.location(), "directory %q has parent inode %d and is found in %d", name, n.raw.parent,
			dir.raw.number)
	}
	return n, nil
}

// openFile is an open file that is no directory.
type openFile struct {
	fileInfo
	*io.SectionReader
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.fileInfo, nil }
func (f *openFile) Close() error               { return nil }

// Size of both embedded fields is the same.
func (f *openFile) Size() int64 { return f.SectionReader.Size() }

// openDir is an open directory. Not for concurrent use.
type openDir struct {
	fileInfo
	last string           // the last name returned; the listing continues after it
	subs map[Ref]struct{} // directories listed so far
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.fileInfo, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: unix.EISDIR}
}

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(count int) ([]fs.DirEntry, error) {
	var list []fs.DirEntry
	var failed error
	err := d.n.list(d.last, func(e listed) bool {
		if e.typ == typeDir {
			if _, ok := d.subs[e.ref]; ok {
				failed = corrupt(d.n.location(), "directory %q is there under another name too", e.name)
				return false
			}
			if d.subs == nil {
				d.subs = make(map[Ref]struct{})
			}
			d.subs[e.ref] = struct{}{}
		}
		var entry DirEntry
		if entry, failed = d.n.im.dirEntry(e); failed != nil {
			return false
		}
		d.last = entry.Name
		list = append(list, dirEntryInfo{d.n.im, entry})
		return len(list) != count
	})
	if err = errors.Join(err, failed); err == nil && count > 0 && len(list) == 0 {
		err = io.EOF
	}
	return list, err
}

// dirEntryInfo is a fs.DirEntry.
type dirEntryInfo struct {
	im *Image
	e  DirEntry
}

func (d dirEntryInfo) Name() string      { return d.e.Name }
func (d dirEntryInfo) IsDir() bool       { return d.e.Mode == unix.S_IFDIR }
func (d dirEntryInfo) Type() fs.FileMode { return fileMode(d.e.Mode) }
func (d dirEntryInfo) String() string    { return fs.FormatDirEntry(d) }

func (d dirEntryInfo) Info() (fs.FileInfo, error) {
	n, err := d.im.Inode(d.e.Ref)
	if err != nil {
		return nil, err
	}
	return fileInfo{d.e.Name, n}, nil
}
