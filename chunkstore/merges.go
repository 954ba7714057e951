package chunkstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
	"snapfs/internal/lockorder"
)

// merges watches Badger merge tables. If a new table cannot be created, for lack of a descriptor or for an error of the
// disk, Badger does without it, says nothing, and removes the tables that it was made of: the index has lost records.
// So there are descriptors and inodes before a merge begins, and after it the new tables are compared with what Badger
// logged that it had put into them. One goroutine merges at a time; Badger logs from its own.
type merges struct {
	sources map[uint64]bool // tables before the merge
	newest  uint64          // of them
	lost    error           // of an earlier one of several merges
	tables  func() []badger.TableInfo

	mu      lockorder.Mutex[lockorder.StoreMerges]
	entries uint64 // put into new tables; guarded by mu
	failed  bool   // Badger gave the merge up; guarded by mu
	held    []int  // descriptors for new tables; guarded by mu
}

// What Badger logs when it begins one of the merges of Flatten, when it has the entries of a new table, and when it gives
// up merging while it is closed.
const (
	logMergeBegins = "Attempting to compact with %+v\n"
	logMergeTable  = "[%d] LOG Compact. Added %d keys. Skipped %d keys. Iteration took: %v"
	logMergeFailed = "While forcing compaction on level 0: %v"
)

const (
	tableLeast = 1 << 20 // bytes of tables of which Badger makes one, at least, except of the last few
	tablesLast = 16      // these, and files that are open for a moment
)

// damagedName is a name for Badger's list of tables in an index that has lost some. To make it takes neither a
// descriptor nor an inode.
const damagedName = "DAMAGED"

// begin takes what a merge of all tables needs to create new ones; the caller calls end. The errors are of class EMFILE,
// ENFILE or ENOSPC.
func (m *merges) begin(dir string, tables func() []badger.TableInfo) error {
	m.tables, m.lost = tables, nil
	m.next()
	n := tablesLast
	for _, t := range tables() {
		n += int(t.OnDiskSize) / tableLeast
	}
	if err := disk.RequireInodes(dir, int64(n)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.held) < n {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			m.releaseLocked(len(m.held))
			return fmt.Errorf("descriptors for %d tables: %w", n, err)
		}
		m.held = append(m.held, fd)
	}
	m.releaseLocked(tablesLast)
	return nil
}

// next forgets the merge before.
func (m *merges) next() {
	m.sources, m.newest = map[uint64]bool{}, 0
	for _, t := range m.tables() {
		m.sources[t.ID] = true
		m.newest = max(m.newest, t.ID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries, m.failed = 0, false
}

// end returns what is wrong with the tables that are there after the merges, which gave err themselves.
func (m *merges) end(tables []badger.TableInfo, err error) error {
	m.release()
	m.mu.Lock()
	m.failed = m.failed || err != nil
	m.mu.Unlock()
	return errors.Join(m.lost, m.check(tables))
}

// check compares the tables after a merge with what went into them.
func (m *merges) check(tables []badger.TableInfo) error {
	entries, kept := uint64(0), 0
	for _, t := range tables {
		switch {
		case m.sources[t.ID]:
			kept++
		case t.Level > 0 && t.ID > m.newest: // those of level 0 come from memtables
			entries += uint64(t.KeyCount)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if entries == m.entries || m.failed && kept == len(m.sources) {
		return nil
	}
	return corrupt.Errorf("a merge of tables wrote %d entries of %d", entries, m.entries)
}

// log looks at what Badger logs.
func (m *merges) log(format string, args []any) {
	switch format {
	case logMergeBegins:
		m.lost = errors.Join(m.lost, m.check(m.tables()))
		m.next()
	case logMergeTable:
		m.mu.Lock()
		defer m.mu.Unlock()
		if n, ok := args[1].(uint64); ok {
			m.entries += n
		}
		m.releaseLocked(1)
	case logMergeFailed:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.failed = true
	}
}

// release closes the descriptors that are held.
func (m *merges) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releaseLocked(len(m.held))
}

// releaseLocked closes n of the descriptors that are held, if there are as many.
func (m *merges) releaseLocked(n int) {
	for ; n > 0 && len(m.held) > 0; n-- {
		_ = unix.Close(m.held[len(m.held)-1])
		m.held = m.held[:len(m.held)-1]
	}
}

// markDamaged makes an index refused from now on.
func markDamaged(dir string) error {
	err := os.Link(filepath.Join(dir, badger.ManifestFilename), filepath.Join(dir, damagedName))
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return errors.Join(err, disk.SyncDir(dir))
}

// checkDamaged refuses an index that was marked.
func checkDamaged(dir string) error {
	_, err := os.Lstat(filepath.Join(dir, damagedName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = corrupt.Errorf("the index lost tables in a merge")
	}
	return err
}

// tablesOf lists the tables of a closed index, without all that Badger says of open ones.
func tablesOf(dir string) ([]badger.TableInfo, error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	list, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir))
	if err != nil {
		return nil, err
	}
	var tables []badger.TableInfo
	for id, t := range list.Tables {
		n, err := guarded("read index", func() (uint32, error) { return countEntries(table.NewFilename(id, dir)) })
		if err != nil {
			return nil, err
		}
		tables = append(tables, badger.TableInfo{ID: id, Level: int(t.Level), KeyCount: n})
	}
	return tables, nil
}

// countEntries gives the number of entries that a table says it has.
func countEntries(path string) (uint32, error) {
	f, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	t, err := table.OpenTable(f, table.Options{BlockSize: blockBytes, Compression: options.ZSTD})
	if err != nil {
		return 0, err // which has closed the file
	}
	return t.KeyCount(), t.Close(-1)
}
