package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"

	"snapfs/internal/testseed"
	"snapfs/squashfs"
)

// hashing is a sink that hashes what is written to it, cuts included.
type hashing struct{ *blake3.Hasher }

func (h hashing) Cut(c squashfs.Cut) error {
	_, err := fmt.Fprintf(h, "%+v", c)
	return err
}

func (h hashing) Header(p []byte) error {
	_, err := h.Write(p)
	return err
}

// variedTree makes a tree with directories in and behind others, hard links, holes, empty, long and unreadable names.
func variedTree(t *testing.T, r *rand.Rand) string {
	t.Helper()
	root := t.TempDir()
	dirs, files := []string{root}, []string{}
	for i := range 600 {
		in := dirs[r.IntN(len(dirs))]
		name := filepath.Join(in, fmt.Sprintf("%c%d", 'a'+rune(r.IntN(26)), i))
		var err error
		switch k := r.IntN(20); {
		case k < 4:
			err = os.Mkdir(name, 0o755)
			dirs = append(dirs, name)
		case k == 4:
			err = os.Symlink("x", name)
		case k == 5 && len(files) > 0:
			err = os.Link(files[r.IntN(len(files))], name)
		case k == 6:
			err = errors.Join(os.WriteFile(name, []byte("start"), 0o644), os.Truncate(name, 300_000))
		case k == 7 && i%10 == 0:
			err = os.WriteFile(name, make([]byte, aheadFile+1), 0o644)
		default:
			data := make([]byte, []int{0, 10, 3000, 200_000}[r.IntN(4)])
			for j := range data {
				data[j] = byte(r.Uint32())
			}
			err = os.WriteFile(name, data, 0o600)
			files = append(files, name)
		}
		require.NoError(t, err)
	}
	return root
}

// TestReadAhead: what is read ahead is what the source has, in the same order.
func TestReadAhead(t *testing.T) {
	seed := testseed.Of(t)
	root := variedTree(t, rand.New(rand.NewPCG(seed, 1)))
	write := func(inTurn bool) ([]byte, squashfs.Info) {
		tree, err := openTree(root)
		require.NoError(t, err)
		defer tree.close()
		var src squashfs.Source = tree
		if !inTurn {
			a := readAhead(tree)
			defer a.close()
			src = a
		}
		h := hashing{blake3.New()}
		info, err := squashfs.WriteStore(t.Context(), h, src, squashfs.StoreOptions{Renumber: true})
		require.NoError(t, err)
		return h.Sum(nil), info
	}
	want, wantInfo := write(true)
	for range 3 {
		got, info := write(false)
		require.Equal(t, wantInfo, info)
		require.Equal(t, want, got)
	}
}

// TestReadAheadEnds: the walk ends with its user, wherever that stops, and gives errors where they are met.
func TestReadAheadEnds(t *testing.T) {
	seed := testseed.Of(t)
	root := variedTree(t, rand.New(rand.NewPCG(seed, 2)))
	tree, err := openTree(root)
	require.NoError(t, err)
	defer tree.close()
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		a := readAhead(tree)
		files := 0
		_, err := squashfs.WriteStore(ctx, hashing{blake3.New()}, a, squashfs.StoreOptions{
			Progress: func(int64, int64) {
				if files++; files == i*5 {
					cancel()
				}
			},
		})
		if i > 0 {
			require.ErrorIs(t, err, context.Canceled)
		}
		a.close()
		cancel()
	}
	a := readAhead(tree)
	a.close() // nothing was asked for
	dir, err := a.src.Root(t.Context())
	require.NoError(t, err)
	require.NotNil(t, dir)
	failing := readAhead(failingSource{tree})
	defer failing.close()
	_, err = squashfs.WriteStore(t.Context(), hashing{blake3.New()}, failing, squashfs.StoreOptions{})
	require.ErrorIs(t, err, errFailing)
}

// TestReadAheadTogether: what all imports together have read ahead is bounded, and each has something.
func TestReadAheadTogether(t *testing.T) {
	const imports, files = 6, 40
	root := t.TempDir()
	for i := range files {
		f, err := os.Create(fmt.Sprintf("%s/f%02d", root, i))
		require.NoError(t, err)
		require.NoError(t, errors.Join(f.Truncate(aheadFile), f.Close()))
	}
	tree, err := openTree(root)
	require.NoError(t, err)
	defer tree.close()
	var all []*ahead
	held := func() (sum int64) {
		for _, a := range all {
			sum += a.budget.Held()
		}
		return sum
	}
	for range imports {
		a := readAhead(tree)
		defer a.close()
		_, err := a.Root(t.Context()) // and nothing more is asked for
		require.NoError(t, err)
		all = append(all, a)
	}
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(all, func(a *ahead) bool { return a.budget.Held() < aheadFile })
	}, time.Minute, time.Millisecond)
	for last, calm := int64(-1), 0; calm < 50; time.Sleep(time.Millisecond) {
		if now := held(); now == last {
			calm++
		} else {
			last, calm = now, 0
		}
	}
	require.LessOrEqual(t, held(), int64(aheadBytes+imports*aheadFile))
	for _, a := range all {
		a.close()
	}
	require.Zero(t, held())
}

var errFailing = errors.New("cannot be read")

// failingSource has files that cannot be read.
type failingSource struct{ squashfs.Source }

func (s failingSource) Open(ctx context.Context, e *squashfs.Entry) (squashfs.File, error) {
	f, err := s.Source.Open(ctx, e)
	return failingFile{f}, err
}

type failingFile struct{ squashfs.File }

func (failingFile) ReadAt([]byte, int64) (int, error) { return 0, errFailing }

var _ io.ReaderAt = failingFile{}
