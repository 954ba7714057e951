package chunkstore

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"

	"snapfs/chunkstore/internal/disk"
	"snapfs/chunkstore/internal/pack"
)

// The file FORMAT is one line that names the version of the store. Version 2 has all of version 1, and forms that
// programs of version 1 would misread. A store of version 1 is raised to version 2 when it is opened for writing,
// before any of them is written. Programs refuse versions that they do not know.
//
// Since version 2 there is a copy with a checksum, FORMAT.copy, which is written first. It tells a damaged FORMAT from
// one of a later version, which raises the copy, too.
const (
	formatName    = "FORMAT"
	formatCopy    = "FORMAT.copy"
	formatVersion = 2 // of new stores
	formatLine    = "snapfs chunk store, version %d\n"
)

func formatText(version int) string { return fmt.Sprintf(formatLine, version) }

// copyText is the contents of FORMAT.copy.
func copyText(version int) string {
	line := formatText(version)
	return line + fmt.Sprintf("crc32c %08x\n", crc32.Checksum([]byte(line), castagnoli))
}

// checkFormat returns the version of the store in dir, or 0 if one may be created there. Its errors are of classes
// ErrFormat, ErrVersion and ErrNotFound.
func (s *Store) checkFormat() (version int, err error) {
	b, err := os.ReadFile(filepath.Join(s.dir, formatName))
	if err == nil {
		return s.parseFormat(b)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	if s.opts.MustExist || s.opts.ReadOnly {
		if s.isStore() {
			return 0, fmt.Errorf("%s: %w: it is missing", s.dir, ErrFormat)
		}
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
		switch e.Name() {
		case lockName, formatName + ".tmp", formatCopy, formatCopy + ".tmp": // left by a crash
		default:
			return 0, fmt.Errorf("%s: holds %s but no store: %w", s.dir, e.Name(), ErrVersion)
		}
	}
	return 0, nil
}

// CheckVersion fails with ErrVersion, ErrFormat or ErrNotFound if this package cannot open the store in dir, as far as its
// version tells. Another process may have the store open.
func CheckVersion(dir string) error {
	_, err := (&Store{dir: dir, opts: Options{ReadOnly: true}}).checkFormat()
	return err
}

// parseFormat distinguishes a store of an unknown version from a damaged or foreign file.
func (s *Store) parseFormat(b []byte) (version int, err error) {
	n, _ := fmt.Sscanf(string(b), formatLine, &version)
	named := n == 1 && version > 0 && string(b) == formatText(version)
	of := s.copyVersion()
	switch {
	case of > formatVersion:
		version = of
	case !named, version > formatVersion && of != 0:
		return 0, fmt.Errorf("%s: %w", s.dir, ErrFormat)
	case version <= formatVersion:
		return version, nil
	}
	return 0, fmt.Errorf("%s: store of version %d: %w", s.dir, version, ErrVersion)
}

// copyVersion returns the version that FORMAT.copy has, 0 if there is none, or it is damaged.
func (s *Store) copyVersion() (version int) {
	b, err := os.ReadFile(filepath.Join(s.dir, formatCopy))
	if n, _ := fmt.Sscanf(string(b), formatLine, &version); err != nil || n != 1 || string(b) != copyText(version) {
		return 0
	}
	return version
}

// isStore reports whether there is a store in dir, whatever its FORMAT says: a copy of that, or a pack or a journal.
func (s *Store) isStore() bool {
	if s.copyVersion() != 0 {
		return true
	}
	names, err := os.ReadDir(s.packDir())
	if err != nil {
		return false
	}
	for _, e := range names {
		b, err := readHead(filepath.Join(s.packDir(), e.Name()))
		if err != nil {
			continue
		}
		num, ok := pack.ParseName(e.Name())
		if ok && pack.IsHeader(b, num) || bytes.HasPrefix(b, []byte(journalMagic)) {
			return true
		}
	}
	return false
}

// readHead reads as many bytes of a file as a pack's header has.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	b := make([]byte, pack.HeaderSize)
	_, err = f.ReadAt(b, 0)
	return b, err
}

// create creates an empty store, or writes FORMAT and its copy anew; the lock is held.
func (s *Store) create() error {
	err := s.publish(formatCopy, copyText(formatVersion))
	if err == nil {
		err = s.publish(formatName, formatText(formatVersion))
	}
	return err
}

// publish writes a file of the store durably.
func (s *Store) publish(name, text string) error {
	tmp := filepath.Join(s.dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, name)); err != nil {
		return err
	}
	return disk.SyncDir(s.dir)
}

// raiseFormat makes a store of an earlier version one of formatVersion, durably; the lock is held. One byte is written
// in place: after a crash it is the old one or the new one, and a full disk has room for it.
func (s *Store) raiseFormat(version int) error {
	if s.opts.ReadOnly {
		return nil
	}
	if s.copyVersion() != formatVersion {
		if err := s.publish(formatCopy, copyText(formatVersion)); err != nil {
			// It is a safeguard only, and a full disk must not keep a store from being opened.
			s.log.Warn("the copy of FORMAT cannot be written", "error", err)
		}
	}
	if version == formatVersion {
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
