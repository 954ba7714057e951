package scale

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
	"snapfs/sandbox"
)

// What the mounted workspace of this part does: every step rewrites some of its files and takes a snapshot, and every
// tenth prunes and collects.
const (
	churnFile  = 64 << 10 // bytes of each file, random
	churnShare = 2        // one file in so many is rewritten by a step
	churnRound = 10       // steps from one collection to the next
)

// churnTree is the tree of a step: the version of each file, from which its contents follow.
type churnTree []uint32

func churnName(file int) string { return fmt.Sprintf("d%d/f%d", file%16, file) }

func churnContents(file int, version uint32) []byte {
	var seed [32]byte
	binary.LittleEndian.PutUint32(seed[:], uint32(file))
	binary.LittleEndian.PutUint32(seed[4:], version)
	b := make([]byte, churnFile)
	_, _ = rand.NewChaCha8(seed).Read(b) // it cannot fail
	return b
}

// write writes one file of the tree below dir, in place.
func (t churnTree) write(dir string, file int) error {
	path := filepath.Join(dir, churnName(file))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, churnContents(file, t[file]), 0o644)
}

// check compares what is below dir with the tree.
func (t churnTree) check(dir string) error {
	for file, version := range t {
		b, err := os.ReadFile(filepath.Join(dir, churnName(file)))
		if err != nil {
			return err
		}
		if !slices.Equal(b, churnContents(file, version)) {
			return fmt.Errorf("%s of %s has other contents", churnName(file), dir)
		}
	}
	return nil
}

// growMounted measures the store beneath a workspace that stays mounted while its snapshots come and go, against a store
// that was made of what is kept.
func growMounted(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	return mountedSpace(ctx, e, g, n, false)
}

// growMountedBusy is growMounted with programs: one file is open and deleted, others are open and mapped, and a second
// workspace is a branch of a snapshot in the middle.
func growMountedBusy(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	return mountedSpace(ctx, e, g, n, true)
}

func mountedSpace(ctx context.Context, e *suite.Env, g *grown, n limits, busy bool) error {
	return withHome(ctx, e, func(s *engine.Daemon, tmp string) (err error) {
		h, err := mountNew(ctx, s, tmp)
		if err != nil {
			return err
		}
		now := make(churnTree, n.mountedBytes/churnFile)
		for file := range now {
			if err := now.write(h.Dir(), file); err != nil {
				return err
			}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		var kept []churnTree // states that a snapshot or a workspace has
		var held *heldFiles
		defer func() { err = errors.Join(err, held.close()) }()
		branch := filepath.Join(tmp, "branch")
		for i := 1; i <= n.mountedSteps; i++ {
			now = slices.Clone(now)
			for file := range now {
				if rng.IntN(churnShare) > 0 {
					continue
				}
				now[file]++
				if err := now.write(h.Dir(), file); err != nil {
					return err
				}
			}
			snap, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
			if err != nil {
				return err
			}
			kept = append(kept, now)
			if busy && i == churnRound/2 {
				if held, err = holdFiles(h.Dir(), len(now)); err != nil {
					return err
				}
			}
			if busy && i == n.mountedSteps/2 {
				if _, err := s.API.Branch(
					ctx, sandbox.RestoreRequest{Snapshot: snap.ID, Mountpoint: branch, MakeMountpoint: true},
				); err != nil {
					return err
				}
				held.branch = now
			}
			e.Bar.Step("snapshots", i, n.mountedSteps)
			if i%churnRound > 0 {
				continue
			}
			if _, err := s.API.Prune(ctx, sandbox.PruneRequest{KeepLast: 2}); err != nil {
				return err
			}
			collected, err := s.API.GC(ctx, sandbox.GCRequest{})
			if err != nil {
				return err
			}
			kept = kept[len(kept)-2:]
			all := kept
			if held != nil && held.branch != nil {
				all = append(slices.Clone(kept), held.branch)
				if err := held.branch.check(branch); err != nil {
					return err
				}
			}
			if err := errors.Join(now.check(h.Dir()), held.check(now)); err != nil {
				return err
			}
			fresh, err := freshStore(ctx, e, tmp, all)
			if err != nil {
				return err
			}
			has, err := storeSize(ctx, s)
			if err != nil {
				return err
			}
			g.add(int64(i), "store", "MB", float64(has.all)/1e6)
			g.add(int64(i), "fresh store", "MB", float64(fresh.all)/1e6)
			g.add(int64(i), "pinned", "MB", float64(collected.PinnedBytes)/1e6)
			g.add(int64(i), "store/fresh", "", float64(has.all)/float64(fresh.all))
			g.add(int64(i), "packs/fresh", "", float64(has.packs)/float64(fresh.packs))
		}
		return nil
	})
}

// sizes are allocated bytes of a store.
type sizes struct {
	all   int64
	packs int64 // without the index, some of which is there before anything is stored
}

func storeSize(ctx context.Context, s *engine.Daemon) (z sizes, err error) {
	st, err := s.API.Stats(ctx, sandbox.StatsRequest{})
	if err != nil {
		return z, err
	}
	z.packs = st.Packs
	z.all, err = tree.Allocated(filepath.Join(s.Home, "store"))
	return z, err
}

// freshStore is the size of a store into which trees were imported one after the other.
func freshStore(ctx context.Context, e *suite.Env, tmp string, trees []churnTree) (z sizes, err error) {
	dir := filepath.Join(tmp, "fresh")
	s, err := engine.Start(ctx, e.Engine(), filepath.Join(dir, "home"))
	if err != nil {
		return z, err
	}
	defer func() { err = errors.Join(err, s.Stop(), os.RemoveAll(dir)) }()
	source := filepath.Join(dir, "tree")
	for i, t := range trees {
		for file := range t {
			if err := t.write(source, file); err != nil {
				return z, err
			}
		}
		name := fmt.Sprintf("w%d", i)
		if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: name, Source: source}); err != nil {
			return z, err
		}
	}
	if _, err := s.API.GC(ctx, sandbox.GCRequest{}); err != nil {
		return z, err
	}
	return storeSize(ctx, s)
}

// heldFiles are files that this process has open and mapped; the first was deleted.
type heldFiles struct {
	files   []*os.File
	mapped  [][]byte
	deleted []byte    // what the first had in it
	branch  churnTree // of the second workspace; nil: there is none yet
}

// holdFiles opens some files of a tree, and a further one that it deletes.
func holdFiles(dir string, files int) (*heldFiles, error) {
	x := &heldFiles{deleted: churnContents(files, 1)}
	gone := filepath.Join(dir, "deleted")
	if err := os.WriteFile(gone, x.deleted, 0o644); err != nil {
		return nil, err
	}
	for i, path := range []string{gone, filepath.Join(dir, churnName(1)), filepath.Join(dir, churnName(2))} {
		f, err := os.Open(path)
		if err != nil {
			return x, err
		}
		x.files = append(x.files, f)
		m, err := unix.Mmap(int(f.Fd()), 0, churnFile, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return x, err
		}
		x.mapped = append(x.mapped, m)
		if i == 0 {
			if err := os.Remove(gone); err != nil {
				return x, err
			}
		}
	}
	return x, nil
}

// check compares what is open with the tree.
func (x *heldFiles) check(t churnTree) error {
	if x == nil {
		return nil
	}
	for i, f := range x.files {
		want := x.deleted
		if i > 0 {
			want = churnContents(i, t[i])
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
		b := make([]byte, churnFile)
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		if !slices.Equal(b, want) || !slices.Equal(x.mapped[i], want) {
			return fmt.Errorf("%s, which is open, has other contents", f.Name())
		}
	}
	return nil
}

func (x *heldFiles) close() error {
	if x == nil {
		return nil
	}
	var errs []error
	for _, m := range x.mapped {
		errs = append(errs, unix.Munmap(m))
	}
	for _, f := range x.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
