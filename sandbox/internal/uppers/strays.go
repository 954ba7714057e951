package uppers

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"snapfs/internal/hosttree"
)

// Named are the uppers that are in use, or are to be: those of records, staged ones included, and those that are ready
// or are being made ready.
func (s *Set) Named() map[uint64]bool {
	// An upper passes from one of these to the next: in this order, none is missed on its way.
	named := s.pool.spares()
	maps.Copy(named, s.records.StagedUppers())
	maps.Copy(named, s.records.Uppers())
	return named
}

// Strays lists the entries of the directory that are neither named nor in trash.
func (s *Set) Strays(trash map[uint64]bool) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	named := s.Named()
	maps.Copy(named, trash)
	var names []string
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 64)
		if err != nil || !named[n] || e.Name() != strconv.FormatUint(n, 10) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Empty reports whether nothing was ever written into the upper directory called name.
func (s *Set) Empty(name string) bool {
	for _, sub := range []string{"upper", "work"} {
		entries, err := os.ReadDir(filepath.Join(s.dir, name, sub))
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(entries) > 0 && sub == "upper" {
			return false
		}
	}
	return true
}

// SetAside removes strays that are empty, and moves others to a directory beside the one of the uppers: they may hold
// somebody's work. Nothing else may use the Set meanwhile.
func (s *Set) SetAside(trash map[uint64]bool, aside string) error {
	names, err := s.Strays(trash)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(s.dir, name)
		if s.Empty(name) {
			err = errors.Join(err, hosttree.RemovePath(path))
			s.points.At("stray upper removed")
			continue
		}
		to := filepath.Join(aside, name+"-"+time.Now().UTC().Format("20060102T150405.000000000"))
		if e := os.MkdirAll(aside, 0o700); e != nil {
			return e
		}
		s.log.Warn("an upper without a record is set aside", "from", path, "to", to)
		err = errors.Join(err, os.Rename(path, to))
		s.points.At("stray upper set aside")
	}
	return err
}
