package hooks

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// maxHookFile bounds a file that hooks are put into, in bytes.
const maxHookFile = 16 << 20

// hookFile is a file below a directory that hooks are put into. Symbolic links are followed, but not out of dir.
type hookFile struct {
	dir, name string
	empty     string      // what it is as if it were when it is missing: it is removed when it is this again
	mode      fs.FileMode // of a new one
}

func (f hookFile) path() string { return filepath.Join(f.dir, f.name) }

// rewrite replaces the contents of the file by what edit makes of them, at once, and reports whether they changed. A file
// keeps its mode and its owner.
func (f hookFile) rewrite(edit func(string) (string, error)) (changed bool, err error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	fail := func(err error) error { return fmt.Errorf("%q: %w", f.path(), err) }
	name, err := f.target()
	if err != nil {
		return false, fail(err)
	}
	old, info, err := readHookFile(root, name)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing || err == nil && old == "" {
		old, err = f.empty, nil
	}
	if err != nil {
		return false, fail(err)
	}
	text, err := edit(old)
	if err != nil {
		return false, fail(err)
	}
	if text == old {
		return false, nil
	}
	if err := unchanged(root, name, info); err != nil {
		return false, fail(err)
	}
	if text == f.empty {
		if err := root.Remove(name); err != nil {
			return false, fail(err)
		}
		_ = root.Remove(filepath.Dir(name)) // if nothing else is there
		return true, nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return false, fail(err)
	}
	if err := f.replace(root, name, text, info); err != nil {
		return false, fail(err)
	}
	return true, nil
}

// target is the file itself, relative to the directory: where symbolic links lead.
func (f hookFile) target() (string, error) {
	at, rest := f.path(), ""
	for {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			name, err := filepath.Rel(f.dir, filepath.Join(real, rest))
			if err != nil || !filepath.IsLocal(name) {
				return "", conflict("it is outside of %q, at %q", f.dir, real)
			}
			return name, nil
		}
		if _, lerr := os.Lstat(at); lerr == nil || !errors.Is(err, fs.ErrNotExist) {
			return "", conflict("%v", err) // a link that leads nowhere
		}
		at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest)
	}
}

func readHookFile(root *os.Root, name string) (string, fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return "", nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxHookFile {
		return "", nil, conflict("it is no file, or too large")
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxHookFile+1))
	return string(text), info, errors.Join(err, file.Close())
}

// unchanged refuses a file that is not as it was when it was read; was is nil if it was missing.
func unchanged(root *os.Root, name string, was fs.FileInfo) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && was == nil:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil, was == nil, !os.SameFile(info, was), info.Size() != was.Size(), !info.ModTime().Equal(was.ModTime()):
		return conflict("it has just been changed by somebody else: try again")
	}
	return nil
}

// replace puts a file with a text in the place of one that was there, with its mode and owner; of a new one, the owner is
// that of the directory.
func (f hookFile) replace(root *os.Root, name, text string, was fs.FileInfo) (err error) {
	mode, like := f.mode, was
	if was == nil {
		if like, err = root.Stat("."); err != nil {
			return err
		}
	} else {
		mode = was.Mode().Perm()
	}
	next := fmt.Sprintf("%s.%08x", name, rand.Uint32())
	file, err := root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(next) // what failed counts
		}
	}()
	_, err = file.WriteString(text)
	if owner, ok := like.Sys().(*syscall.Stat_t); ok && err == nil && os.Geteuid() == 0 {
		err = file.Chown(int(owner.Uid), int(owner.Gid))
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := unchanged(root, name, was); err != nil {
		return err
	}
	return root.Rename(next, name)
}
