package gitcommit

import (
	"io"
	"os"
	"path"
)

// Files are put into the work directory, one after the other.
type Files struct {
	r    *Repo
	dirs map[string]bool
	file *os.File
	link []byte
	name string // of the link
}

// Files begins to fill the work directory. Close must be called.
func (r *Repo) Files() *Files { return &Files{r: r, dirs: map[string]bool{".": true}} }

// Begin begins a file, executable or not, or a symbolic link. What is written then is in it, or where it leads.
func (f *Files) Begin(name string, link, executable bool) error {
	if err := f.Close(); err != nil {
		return err
	}
	if dir := path.Dir(name); !f.dirs[dir] {
		if err := f.r.work.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		f.dirs[dir] = true
	}
	if link {
		f.name, f.link = name, []byte{}
		return nil
	}
	mode := os.FileMode(0o600)
	if executable {
		mode = 0o700
	}
	var err error
	f.file, err = f.r.work.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	return err
}

// Write implements io.Writer.
func (f *Files) Write(p []byte) (int, error) {
	switch {
	case f.file != nil:
		return f.file.Write(p)
	case f.link != nil:
		f.link = append(f.link, p...)
		return len(p), nil
	}
	return 0, io.ErrClosedPipe
}

// Close ends what was begun last.
func (f *Files) Close() error {
	var err error
	switch {
	case f.file != nil:
		err = f.file.Close()
	case f.link != nil:
		err = f.r.work.Symlink(string(f.link), f.name)
	}
	f.file, f.link = nil, nil
	return err
}
