package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// corpus is a recipe for a history of states.
type corpus struct {
	name     string
	about    string
	programs []string // that building needs
	long     bool     // built and measured with --full or by name only
	recipe   int      // raised when the recipe changes, so that the cache is not used
	build    func(ctx context.Context, b *builder) error
}

func allCorpora() []corpus {
	return []corpus{sourceCorpus(), nodeCorpus(), noiseCorpus(), agentCorpus()}
}

func corpusNames() []string {
	var names []string
	for _, c := range allCorpora() {
		names = append(names, c.name)
	}
	return names
}

// history is a built corpus: directories in order of time.
type history struct {
	name   string
	about  string
	states []string
}

// states builds what is asked for, or finds it in the cache.
func (e *env) states(ctx context.Context) ([]history, error) {
	switch {
	case len(e.trees) > 0:
		return []history{{name: "tree", about: strings.Join(e.trees, " "), states: e.trees}}, nil
	case e.repo != "":
		h, err := e.commits(ctx)
		return []history{h}, err
	}
	for _, n := range e.corpora {
		if !slices.Contains(corpusNames(), n) {
			return nil, fmt.Errorf("no corpus %q; there are %s", n, strings.Join(corpusNames(), ", "))
		}
	}
	var out []history
	for _, c := range allCorpora() {
		if !slices.Contains(e.corpora, c.name) && (len(e.corpora) > 0 || c.long && !e.full) {
			continue
		}
		h, err := e.cached(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("build corpus %s: %w", c.name, err)
		}
		out = append(out, h)
	}
	return out, nil
}

// cached gives a corpus from the cache, built first if it is not there. A directory of the cache is complete.
func (e *env) cached(ctx context.Context, c corpus) (history, error) {
	h := history{name: c.name, about: c.about}
	final := filepath.Join(e.cache, fmt.Sprintf("%s.%d", c.name, c.recipe))
	if _, err := os.Stat(final); errors.Is(err, fs.ErrNotExist) {
		if gone := missing(c.programs); len(gone) > 0 {
			return h, fmt.Errorf("missing programs: %s", strings.Join(gone, ", "))
		}
		// Not in the scratch directory, which may be on another file system.
		dir, err := os.MkdirTemp(e.cache, "build-")
		if err != nil {
			return h, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		b := &builder{ws: filepath.Join(dir, "ws"), dir: dir, name: c.name, bar: e.bar, since: time.Now().Add(-time.Minute)}
		for _, d := range []string{b.ws, filepath.Join(dir, "states")} {
			if err := os.Mkdir(d, 0o755); err != nil {
				return h, err
			}
		}
		if err := c.build(ctx, b); err != nil {
			return h, err
		}
		if err := os.Rename(filepath.Join(dir, "states"), final); err != nil {
			return h, err
		}
	} else if err != nil {
		return h, err
	}
	entries, err := os.ReadDir(final)
	for _, d := range entries {
		h.states = append(h.states, filepath.Join(final, d.Name()))
	}
	return h, err
}

// builder makes a corpus: the recipe works in ws and calls freeze after each step.
type builder struct {
	name  string
	ws    string // the workspace
	dir   string // scratch of this build, ws in it
	bar   *progress
	since time.Time // what was changed later gets the step's time
	prev  string    // last state
	steps int
}

// freeze makes the workspace as it is now the next state.
func (b *builder) freeze(ctx context.Context) error {
	const epoch, step = 1_700_000_000, 3600
	next := filepath.Join(b.dir, "states", fmt.Sprintf("%03d", b.steps))
	stamp := time.Unix(epoch+int64(b.steps)*step, 0)
	if err := freeze(ctx, b.ws, b.prev, next, b.since, stamp); err != nil {
		return err
	}
	b.prev = next
	b.steps++
	b.bar.step("building "+b.name, b.steps, 0)
	return nil
}

// write makes a file of the workspace, directories included.
func (b *builder) write(name, contents string) error {
	path := filepath.Join(b.ws, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// edit replaces text in a file of the workspace, every occurrence.
func (b *builder) edit(name string, oldNew ...string) error {
	text, err := os.ReadFile(filepath.Join(b.ws, name))
	if err != nil {
		return fmt.Errorf("edit %s: %w", name, err)
	}
	return b.write(name, strings.NewReplacer(oldNew...).Replace(string(text)))
}
