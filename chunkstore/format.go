package chunkstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
)

// The file FORMAT is one line that names the version of the store. Version 2 has all of version 1, and forms that
// programs of version 1 would misread. A store of version 1 is raised to version 2 when it is opened for writing,
// before any of them is written. Programs refuse versions that they do not know.
const (
	formatName    = "FORMAT"
	formatVersion = 2 // of new stores
	formatLine    = "snapfs chunk store, version %d\n"
)

func formatText(version int) string { return fmt.Sprintf(formatLine, version) }

// checkFormat returns the version of the store in dir, or 0 if one may be created there.
func (s *Store) checkFormat() (version int, err error) {
	b, err := os.ReadFile(filepath.Join(s.dir, formatName))
	if err == nil {
		return parseFormat(s.dir, b)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	if s.opts.MustExist || s.opts.ReadOnly {
		return 0, fmt.Errorf("%s: no store: %w", s.dir, ErrNotFound)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return 0, err
	}
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, err
	}
	for _, e := range names {
		if e.Name() != lockName && e.Name() != formatName+".tmp" {
			return 0, fmt.Errorf("%s: holds %s but no store: %w", s.dir, e.Name(), ErrVersion)
		}
	}
	return 0, nil
}

// parseFormat distinguishes a store of an unknown version from a damaged or foreign file.
func parseFormat(dir string, b []byte) (version int, err error) {
	if n, _ := fmt.Sscanf(string(b), formatLine, &version); n != 1 || string(b) != formatText(version) {
		return 0, corrupt.Errorf("%s: %s is damaged", dir, formatName)
	}
	if version < 1 || version > formatVersion {
		return 0, fmt.Errorf("%s: store of version %d: %w", dir, version, ErrVersion)
	}
	return version, nil
}

// create creates an empty store; the lock is held.
func (s *Store) create() error {
	tmp := filepath.Join(s.dir, formatName+".tmp")
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteString(formatText(formatVersion))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, formatName)); err != nil {
		return err
	}
	return disk.SyncDir(s.dir)
}

// raiseFormat makes a store of an earlier version one of formatVersion, durably; the lock is held. One byte is written
// in place: after a crash it is the old one or the new one, and a full disk has room for it.
func (s *Store) raiseFormat(version int) error {
	if s.opts.ReadOnly || version == formatVersion {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(s.dir, formatName), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	at := strings.Index(formatLine, "%d")
	_, err = f.WriteAt([]byte(formatText(formatVersion)[at:at+1]), int64(at))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("raise the version of the store: %w", err)
	}
	return nil
}
