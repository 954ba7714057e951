package corpora

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"snapfs/bench/internal/progress"
	"snapfs/bench/internal/tree"
)

// Builder makes a corpus: the recipe works in ws and calls freeze after each step.
type Builder struct {
	name      string
	Workspace string // the workspace
	dir       string // scratch of this build, ws in it
	bar       *progress.Bar
	since     time.Time // what was changed later gets the step's time
	Prev      string    // last state
	steps     int

	mirror string // of Debian's packages
}

// NewBuilder makes a builder that works in dir, which is there or is made.
func NewBuilder(name, dir string, bar *progress.Bar) (*Builder, error) {
	b := &Builder{
		name: name, Workspace: filepath.Join(dir, "ws"), dir: dir, bar: bar, since: time.Now().Add(-time.Minute),
	}
	for _, d := range []string{b.Workspace, filepath.Join(dir, "states")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
	}
	return b, nil
}

// Freeze makes the workspace as it is now the next state.
func (b *Builder) Freeze(ctx context.Context) error {
	const epoch, step = 1_700_000_000, 3600
	next := filepath.Join(b.dir, "states", fmt.Sprintf("%03d", b.steps))
	stamp := time.Unix(epoch+int64(b.steps)*step, 0)
	if err := tree.Freeze(ctx, b.Workspace, b.Prev, next, b.since, stamp); err != nil {
		return err
	}
	b.Prev = next
	b.steps++
	b.bar.Step("building "+b.name, b.steps, 0)
	return nil
}

// Write makes a file of the workspace, directories included.
func (b *Builder) Write(name, contents string) error {
	path := filepath.Join(b.Workspace, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Edit replaces text in a file of the workspace, every occurrence.
func (b *Builder) Edit(name string, oldNew ...string) error {
	text, err := os.ReadFile(filepath.Join(b.Workspace, name))
	if err != nil {
		return fmt.Errorf("edit %s: %w", name, err)
	}
	return b.Write(name, strings.NewReplacer(oldNew...).Replace(string(text)))
}
