package chunkstore

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/varint"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkTables checks the files of a Badger database as far as Badger relies on them at opening. Recovering from a panic
// would not help: on damage, Badger ends the process from its own goroutines (a truncated table), continues without the
// table (a wrong checksum), or removes tables (a truncated list).
func checkTables(dir string) error {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, os.ErrNotExist) {
		return nil // a new index
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	list, end, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir))
	if err != nil {
		return corrupt.Errorf("list of tables: %w", err)
	}
	for num := range list.Tables {
		path := table.NewFilename(num, dir)
		if err := checkTable(path); err != nil {
			return corrupt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	logs, err := memLogs(dir)
	if err != nil || len(logs) > 0 {
		return err // a crash may have cut the list; see checkCounts
	}
	if end < fi.Size() {
		return corrupt.Errorf("list of tables ends at byte %d of %d", end, fi.Size())
	}
	return nil
}

// hasUnnamed reports whether there are tables that the list of tables does not name, which Badger removes when it opens
// the database. A process that was killed leaves them: a merge writes tables before they are named, and removes those that
// it has merged after they are not any more. A list that was cut leaves them, too.
func hasUnnamed(dir string) (bool, error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // a new index
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read
	list, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir))
	if err != nil {
		return false, corrupt.Errorf("list of tables: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(names, func(e os.DirEntry) bool {
		num, ok := table.ParseFileID(e.Name())
		_, named := list.Tables[num]
		return ok && !named
	}), nil
}

// checkTable verifies the index of one of Badger's tables, which is found from the file's end: blocks, index, 4 bytes
// length of the index, checksum (protobuf: 1 algorithm, 0 or none being CRC-32C; 2 sum), 4 bytes length of that.
// Integers are big-endian.
func checkTable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	end := fi.Size()
	tail := func(n int64) ([]byte, error) {
		if n > end {
			return nil, errors.New("is cut short")
		}
		end -= n
		return io.ReadAll(io.NewSectionReader(f, end, n))
	}
	length := func() (int64, error) {
		b, err := tail(4)
		if err != nil {
			return 0, err
		}
		return int64(binary.BigEndian.Uint32(b)), nil
	}
	n, err := length()
	if err != nil {
		return err
	}
	sum, err := tail(n)
	if err != nil {
		return err
	}
	if n, err = length(); err != nil {
		return err
	}
	index, err := tail(n)
	if err != nil {
		return err
	}
	p := varint.Parser{Rest: sum}
	want := map[uint64]uint64{}
	for len(p.Rest) > 0 && !p.Bad {
		tag := p.Uint()
		want[tag] = p.Uint()
	}
	const algorithm, value = 1 << 3, 2 << 3 // tags of varint fields
	if p.Bad || n == 0 || want[algorithm] != 0 || want[value] != uint64(crc32.Checksum(index, castagnoli)) {
		return errors.New("checksum of the index does not match")
	}
	return nil
}

// removeUnused removes files that Badger creates and this store never uses, damaged or not.
func removeUnused(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range names {
		if e.Name() == "DISCARD" || e.Name() == badger.KeyRegistryFileName || strings.HasSuffix(e.Name(), ".vlog") {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// counter is a file with the number of the newest transaction of the index. It is written when that is durable, and not
// synced: after a crash it may lag behind the index. An index that lags behind it has lost acknowledged transactions.
//
//	number 8 bytes, little-endian
//	crc    4 bytes, CRC-32C of the number
type counter struct{ f *os.File }

const counterSize = 12

// openCounter also returns the number; 0 if it is not known.
func openCounter(path string, readOnly bool) (*counter, uint64, error) {
	flag := os.O_RDWR | os.O_CREATE
	if readOnly {
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flag, 0o600)
	if readOnly && errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	b := make([]byte, counterSize)
	if _, err := f.ReadAt(b, 0); err != nil || binary.LittleEndian.Uint32(b[8:]) != crc32.Checksum(b[:8], castagnoli) {
		return &counter{f}, 0, nil // new, or damaged: it is a safeguard only
	}
	return &counter{f}, binary.LittleEndian.Uint64(b), nil
}

// set does nothing to a nil counter.
func (c *counter) set(n uint64) error {
	if c == nil {
		return nil
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, counterSize), n)
	_, err := c.f.WriteAt(binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), 0)
	return err
}

func (c *counter) close() error { return c.f.Close() }

// checkCount refuses an index that has lost transactions.
func (s *Store) checkCount() error {
	c, n, err := openCounter(filepath.Join(s.dir, counterName), s.opts.ReadOnly)
	s.count = c
	if err == nil && n > s.state.txns {
		err = corrupt.Errorf("the index has lost its newest records: it ends at transaction %d of %d", s.state.txns, n)
	}
	return err
}

// checkCounts compares the contents of the index with its counters, after a crash: if the list of tables was truncated,
// older tables may be missing although the newest transaction is in the log.
func (s *Store) checkCounts() error {
	manifests, chunks := int64(0), int64(0)
	err := s.view(func(btx *badger.Txn) error {
		prefix := []byte{keyManifest}
		if err := scan(btx, prefix, prefix, func(_, _ []byte) (bool, error) {
			manifests++
			return true, nil
		}); err != nil {
			return err
		}
		return s.eachPage(context.Background(), btx, func(_ uint64, pg *page) error {
			for i := range pg.slots {
				if pg.slots[i].rec != nil {
					chunks++
				}
			}
			return nil
		})
	})
	if err == nil && (manifests != s.state.manifests || chunks != s.state.chunks) {
		err = corrupt.Errorf("the index has lost records: it holds %d manifests and %d chunks of %d and %d",
			manifests, chunks, s.state.manifests, s.state.chunks)
	}
	return err
}
