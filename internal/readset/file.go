package readset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"snapfs/internal/hosttree"
)

// In a directory, DIR/ID holds a set that nobody changes. From Begin to End it is DIR/ID.open, as it was at Begin: if
// it is still there at the next Begin, the process ended without End, and what was read meanwhile is not known.
const openSuffix = ".open"

// Create writes an empty set.
func Create(dir, id string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return End(dir, id, New(MaxEntities))
}

// Begin gives the set of an id, which the caller has until End. What cannot be read leaves a gap. Only one caller may
// have a set.
func Begin(dir, id string) (*Set, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := Load(dir, id)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, id)
	err = os.Rename(path, path+openSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = write(path+openSuffix, s.Encode())
	}
	if err != nil {
		return nil, err
	}
	return s, hosttree.SyncDir(dir)
}

// End writes a set that Begin has given, durably.
func End(dir, id string, s *Set) error {
	path := filepath.Join(dir, id)
	tmp := path + ".tmp"
	err := write(tmp, s.Encode())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = hosttree.SyncDir(dir)
	}
	if err != nil {
		_ = os.Remove(tmp) // the first error counts
		return err
	}
	if err := os.Remove(path + openSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Load gives a copy of the set of an id, between End and Begin.
func Load(dir, id string) (*Set, error) {
	path := filepath.Join(dir, id)
	s, err := read(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if s, err = read(path + openSuffix); err == nil {
		when := ""
		if info, err := os.Stat(path + openSuffix); err == nil {
			when = " since " + info.ModTime().UTC().Format(time.RFC3339)
		}
		s.Lose("the process that served the workspace ended before it could record what was read" + when)
		return s, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s = New(MaxEntities)
	s.Lose("the record of what was read is missing")
	return s, nil
}

// read reads a file; what is damaged becomes a set with a gap.
func read(path string) (*Set, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := Decode(b, MaxEntities)
	if err != nil {
		s = New(MaxEntities)
		s.Lose(fmt.Sprintf("%v (%s)", err, path))
	}
	return s, nil
}

func write(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// Sweep removes the sets that nobody wants any more. None may be in use.
func Sweep(dir string, wanted func(id string) bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		id, temporary := strings.CutSuffix(e.Name(), ".tmp")
		if !temporary {
			id = strings.TrimSuffix(id, openSuffix)
		}
		if temporary || !wanted(id) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Remove removes the set of an id.
func Remove(dir, id string) error {
	path := filepath.Join(dir, id)
	for _, p := range []string{path, path + openSuffix} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
