package chunkstore

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/varint"
)

// entriesAhead is how many transactions the journal may be ahead of the index after a crash: the entry of a transaction
// is synced before the index, and the index before the entry of the next one. A group of transactions that callers ask
// for at the same time is one, with one entry (group.go).
const entriesAhead = 1

// checkAhead refuses an index that is older than what lies beside it, as after a backup of it was put back: what it does
// not name would be cut off. Nothing is changed. ends says how far the index names packs.
func (s *Store) checkAhead(ends map[uint32]int64) error {
	nums, err := journals(s.packDir())
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(s.dir, newIndexName)); err == nil && len(nums) > 0 {
		// A rebuild was interrupted. The last journal may be that of the new index.
		slices.Sort(nums)
		if last := len(nums) - 1; nums[last] > s.state.journal {
			nums = nums[:last]
		}
	}
	for _, num := range nums {
		from := int64(pack.HeaderSize)
		if num == s.state.journal {
			from = s.state.journalEnd
		}
		txn, err := s.newestEntry(filepath.Join(s.packDir(), journalName(num)), from)
		if err != nil {
			return err
		}
		if txn > s.state.txns+entriesAhead {
			return corrupt.Errorf("the index is older than %s: it ends at transaction %d of %d",
				journalName(num), s.state.txns, txn)
		}
	}
	return s.checkPacks(ends)
}

// newestEntry returns the highest transaction of the entries of a journal that follow each other from an offset on; 0
// if there are none.
func (s *Store) newestEntry(path string, from int64) (newest uint64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // beside a reader, a writer may have replaced it
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read
	// Most of the time there is nothing, or space that was allocated in advance.
	head := make([]byte, 8)
	if _, err := f.ReadAt(head, from); err != nil || string(head) == string(make([]byte, len(head))) {
		return 0, nil //nolint:nilerr // the end of the file
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, 1<<62))
	if err != nil {
		return 0, err
	}
	pack.ScanEntries(b, func(r *pack.Record) bool {
		p := varint.Parser{Rest: r.Frame}
		txn := p.Uint()
		if r.Kind != pack.Journal || p.Bad {
			return false
		}
		newest = max(newest, txn)
		return true
	})
	return newest, nil
}

// checkPacks refuses an index that names a pack that is gone, while there is one that it does not name: records were
// moved since.
func (s *Store) checkPacks(ends map[uint32]int64) error {
	names, err := os.ReadDir(s.packDir())
	if err != nil {
		return err
	}
	there, unnamed := map[uint32]bool{}, ""
	for _, e := range names {
		num, ok := pack.ParseName(e.Name())
		if !ok {
			continue
		}
		there[num] = true
		fi, err := e.Info()
		if _, named := ends[num]; !named && err == nil && fi.Size() > pack.HeaderSize {
			unnamed = e.Name()
		}
	}
	for num := range ends {
		if !there[num] && unnamed != "" {
			return corrupt.Errorf("the index is older than the packs: it names %s, which is gone, and not %s",
				pack.Name(num), unnamed)
		}
	}
	return nil
}
