package layers

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/readset"
	"snapfs/internal/testseed"
)

// marked finds what the files of a base hold: their own paths.
var marked = regexp.MustCompile(`<([a-z/]+)>`)

// TestReadsSound has actors move, change and read files of a base, each of which holds its own path: whoever gets such
// a path to see has read that file, and it must be noted as read, wherever it was then.
func TestReadsSound(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 11))
	low := t.TempDir()
	for range 60 {
		p := randomPath(rng)
		if os.MkdirAll(filepath.Join(low, filepath.Dir(p)), 0o755) == nil {
			_ = os.WriteFile(filepath.Join(low, p), fmt.Appendf(nil, "<%s>", p), 0o644) // it may be a directory
		}
	}
	for _, most := range []int{readset.MaxEntities, 20} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			s := readset.New(most)
			r := newRig(t, low)
			require.NoError(t, r.o.Close())
			o, err := New(r.upper(), r.work(), r.lowers, Options{InoBase: r.base(), Reads: s})
			require.NoError(t, err)
			r.o = o
			o.orphans.limit = rigPins
			seen := r.readMarks(seed)
			require.NotEmpty(t, seen)
			noted := readset.NewIndex(s.Reads())
			for p := range seen {
				k, _ := noted.Of(p)
				require.NotZero(t, k&readset.Content, "%s was read, and is not noted: %v", p, s.Reads())
			}
			require.Empty(t, s.Gap())
		})
	}
}

// readMarks lets actors work, and gives the paths that they have got to see in files.
func (r *rig) readMarks(seed uint64) map[string]bool {
	seen := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for actor := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(actor)))
		wg.Go(func() {
			for range 400 {
				st := randomStep(rng)
				if st.kind == "list" || st.kind == "write" && rng.IntN(3) > 0 {
					continue
				}
				if rng.IntN(3) == 0 {
					st.kind = "read"
				}
				got := r.do(st)
				mu.Lock()
				for _, m := range marked.FindAllStringSubmatch(got, -1) {
					seen[m[1]] = true
				}
				mu.Unlock()
			}
		})
	}
	r.seal()
	wg.Wait()
	return seen
}
