package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// jam keeps transactions in line until the function it returns is called; none is under way.
func jam(s *Store) (release func()) {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	s.line.busy = true
	return s.line.pass
}

// waitLine waits until so many transactions are in line.
func waitLine(t *testing.T, s *Store, small, large int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.line.mu.Lock()
		defer s.line.mu.Unlock()
		return len(s.line.small) == small && len(s.line.large) == large
	}, time.Minute, time.Millisecond)
}

// putGroup returns a function that writes a value.
func putGroup(key, value string) func(tx *Tx) error {
	return func(tx *Tx) error { return tx.Put("group", key, []byte(value)) }
}

// TestGroup checks that transactions that wait at the same time are one, whatever becomes of some of them.
func TestGroup(t *testing.T) {
	s := openTest(t, t.TempDir())
	failed := errors.New("failed")
	require.NoError(t, s.Update(t.Context(), true, putGroup("old", "kept")))
	txns := s.state.txns
	release := jam(s)
	const most = 20
	errs := make([]error, most)
	runs := make([]int, most)
	want := map[string]string{"old": "kept"}
	var all sync.WaitGroup
	for i := range most {
		key := fmt.Sprint(i)
		fn := putGroup(key, key)
		switch i % 5 {
		case 1: // fails before it writes
			fn = func(*Tx) error { return failed }
		case 3: // after it has overwritten what others wrote
			fn = func(tx *Tx) error {
				return errors.Join(
					tx.Put("group", fmt.Sprint(i-1), nil), tx.Delete("group", "old"), tx.Put("group", key, nil), failed)
			}
		default:
			want[key] = key
		}
		all.Go(func() {
			errs[i] = s.Update(t.Context(), true, func(tx *Tx) error {
				runs[i]++
				return fn(tx)
			})
		})
		waitLine(t, s, i+1, 0)
	}
	release()
	all.Wait()
	require.Equal(t, txns+1, s.state.txns, "all share a transaction")
	for i, err := range errs {
		if i%5 == 1 || i%5 == 3 {
			require.ErrorIs(t, err, failed)
			require.Equal(t, 1, runs[i], "what has failed does not run again")
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, want, records(t, s, "group"))
}

// TestGroupParts checks that a transaction that cannot be written does not take those with it that share its group.
func TestGroupParts(t *testing.T) {
	s := openTest(t, t.TempDir())
	require.NoError(t, s.Update(t.Context(), true, putGroup("old", "kept")))
	release := jam(s)
	var all sync.WaitGroup
	all.Go(func() {
		err := s.update(func(w *writeTxn) error {
			w.successor = &successor{from: w.state.journal + 1}
			return nil
		})
		require.ErrorIs(t, err, errJournalGone)
	})
	waitLine(t, s, 0, 1)
	want := map[string]string{"old": "kept"}
	for i := range 3 {
		key := fmt.Sprint(i)
		want[key] = key
		all.Go(func() { require.NoError(t, s.Update(context.Background(), true, putGroup(key, key))) })
		waitLine(t, s, i+1, 1)
	}
	release()
	all.Wait()
	require.Equal(t, want, records(t, s, "group"))
}

// TestGroupFair checks that a small transaction is in the next group, however many large ones wait, and that these are
// not kept from theirs by small ones.
func TestGroupFair(t *testing.T) {
	s := openTest(t, t.TempDir())
	require.NoError(t, s.Update(t.Context(), true, putGroup("a", "a")))
	first := s.state.txns + 1
	release := jam(s)
	var all sync.WaitGroup
	var in [5]uint64 // the transactions, by number
	for i := range 3 {
		all.Go(func() {
			require.NoError(t, s.update(func(w *writeTxn) error {
				in[i] = w.state.txns + 1
				return w.set([]byte{keySentinel, byte(i)}, []byte("large"))
			}))
		})
		waitLine(t, s, 0, i+1)
	}
	for i := range 2 {
		all.Go(func() {
			require.NoError(t, s.Update(context.Background(), true, func(tx *Tx) error {
				in[3+i] = tx.w.state.txns + 1
				return tx.Put("group", fmt.Sprint(i), nil)
			}))
		})
		waitLine(t, s, i+1, 3)
	}
	release()
	all.Wait()
	require.Equal(t, [5]uint64{first, first + 1, first + 2, first, first}, in)
}

// TestGroupRoom checks that groups are bounded: what does not fit is in the next one, and a large transaction that
// found too little room goes before small ones that came later.
func TestGroupRoom(t *testing.T) {
	s := openTest(t, t.TempDir())
	require.NoError(t, s.Update(t.Context(), true, putGroup("a", "a")))
	first := s.state.txns + 1
	release := jam(s)
	var all sync.WaitGroup
	in := make([]uint64, 5)
	note := func(i int, w *writeTxn) { in[i] = w.state.txns + 1 }
	for i := range 4 {
		all.Go(func() {
			require.NoError(t, s.Update(context.Background(), true, func(tx *Tx) error {
				note(i, tx.w)
				for k := range 4000 {
					if err := tx.Put("group", fmt.Sprint(i, k), []byte("value")); err != nil {
						return err
					}
				}
				return nil
			}))
		})
		waitLine(t, s, i+1, 0)
	}
	all.Go(func() {
		require.NoError(t, s.update(func(w *writeTxn) error {
			note(4, w)
			return nil
		}))
	})
	waitLine(t, s, 4, 1)
	release()
	all.Wait()
	require.Equal(t, []uint64{first, first, first + 2, first + 2, first + 1}, in)
}

// TestGroupLarge checks that large and small transactions of a group do not share their failures, and that a large one
// runs once.
func TestGroupLarge(t *testing.T) {
	s := openTest(t, t.TempDir())
	failed := errors.New("failed")
	for _, fails := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			release := jam(s)
			var all sync.WaitGroup
			ran := 0
			var smallErr, largeErr error
			all.Go(func() {
				smallErr = s.Update(t.Context(), true, func(tx *Tx) error {
					err := tx.Put("small", t.Name(), nil)
					if fails[0] {
						err = failed
					}
					return err
				})
			})
			all.Go(func() {
				largeErr = s.update(func(w *writeTxn) error {
					ran++
					err := w.set(valueKey("large", t.Name()), []byte("x"))
					if fails[1] {
						err = failed
					}
					return err
				})
			})
			waitLine(t, s, 1, 1)
			release()
			all.Wait()
			require.Equal(t, 1, ran)
			for i, err := range []error{smallErr, largeErr} {
				_, there := records(t, s, []string{"small", "large"}[i])[t.Name()]
				require.Equal(t, !fails[i], there)
				require.Equal(t, fails[i], errors.Is(err, failed), "%v", err)
			}
		})
	}
}

// TestGroupJournal checks that the journal has what shares the transaction in which a successor becomes the one in use.
func TestGroupJournal(t *testing.T) {
	s := openTest(t, t.TempDir())
	require.NoError(t, s.Update(t.Context(), true, putGroup("a", "1")))
	release := jam(s)
	var all sync.WaitGroup
	all.Go(func() { require.NoError(t, s.rewriteJournal(context.Background(), false)) })
	waitLine(t, s, 0, 1)
	all.Go(func() { require.NoError(t, s.Update(context.Background(), true, putGroup("b", "2"))) })
	waitLine(t, s, 1, 1)
	txns := s.state.txns
	release()
	all.Wait()
	require.Equal(t, txns+1, s.state.txns)
	_, err := s.checkJournal()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, records(t, s, "group"))
}

// TestGroups has many writers change values of their own, while streams are stored and the journal is rewritten, and
// compares the index, the journal and what a rebuild makes of it with what they did.
func TestGroups(t *testing.T) {
	dir, seed := t.TempDir(), testseed.Of(t)
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	failed := errors.New("failed")
	const writers, rounds = 8, 40
	want := map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			own := map[string]string{}
			for i := range rounds {
				next := maps.Clone(own)
				fail := r.IntN(4) == 0
				keys := [3]string{}
				for k := range keys {
					keys[k] = fmt.Sprint(n, r.IntN(10))
				}
				err := s.Update(context.Background(), true, func(tx *Tx) error {
					next = maps.Clone(own)
					for k, key := range keys {
						var err error
						if k == 0 {
							delete(next, key)
							err = tx.Delete("group", key)
						} else {
							next[key] = fmt.Sprint(i, k)
							err = tx.Put("group", key, []byte(next[key]))
						}
						if err != nil {
							return err
						}
					}
					if fail {
						return failed
					}
					return nil
				})
				require.Equal(t, fail, errors.Is(err, failed), "%v", err)
				if !fail {
					own = next
				}
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(want, own)
		})
	}
	all.Go(func() {
		r := rand.New(rand.NewPCG(seed, writers))
		for i := range rounds / 4 {
			_, err := tryPut(s, nil, part{fmt.Sprint(i), text(r, 20_000), nil})
			require.NoError(t, err)
			require.NoError(t, s.rewriteJournal(context.Background(), false))
		}
	})
	all.Wait()
	require.Equal(t, want, records(t, s, "group"))
	requireClean(t, s)
	require.Less(t, s.state.txns, uint64(writers*rounds), "some shared a transaction")
	require.NoError(t, s.Close())
	_, err = RebuildIndex(t.Context(), dir, RebuildOptions{})
	require.NoError(t, err)
	require.Equal(t, want, records(t, openTest(t, dir), "group"))
}
