package corpora

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/progress"
	"snapfs/bench/internal/scratch"
)

// Shelf is the directory in which corpora are kept once they are built.
type Shelf struct {
	Dir    string
	Mirror string // of Debian's packages
	Bar    *progress.Bar
	Guard  *scratch.Guard
}

func (s Shelf) path(c Corpus) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%s.%d", c.Name, c.recipe))
}

// Has reports whether a corpus was built before.
func (s Shelf) Has(c Corpus) bool {
	_, err := os.Stat(s.path(c))
	return err == nil
}

// History gives a corpus, built first if it is not there. A directory of the shelf is complete.
func (s Shelf) History(ctx context.Context, c Corpus) (History, error) {
	h := History{Name: c.Name, About: c.about, Digest: c.digest}
	final := s.path(c)
	if _, err := os.Stat(final); errors.Is(err, fs.ErrNotExist) {
		if err := s.build(ctx, c, final); err != nil {
			return h, err
		}
	} else if err != nil {
		return h, err
	}
	entries, err := os.ReadDir(final)
	for _, d := range entries {
		h.States = append(h.States, filepath.Join(final, d.Name()))
	}
	return h, err
}

func (s Shelf) build(ctx context.Context, c Corpus, final string) (err error) {
	if gone := program.Missing(c.programs); len(gone) > 0 {
		return fmt.Errorf(
			"missing programs: %s (Debian's packages: %s)", strings.Join(gone, ", "),
			strings.Join(program.Packages(gone), ", "),
		)
	}
	if c.root && os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	// Not in the scratch directory, which may be on another file system.
	dir, remove, err := s.Guard.Make(s.Dir, "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b, err := NewBuilder(c.Name, dir, s.Bar)
	if err != nil {
		return err
	}
	b.mirror = s.Mirror
	if err := c.build(ctx, b); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, "states"), final)
}
