package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	root     bool     // building needs privilege
	long     bool     // built and measured with --full or by name only
	recipe   int      // raised when the recipe changes, so that the cache is not used
	digest   string   // of the states that the committed results were measured on
	disk     int64    // bytes that building takes at its peak
	logical  int64    // bytes of all states
	build    func(ctx context.Context, b *builder) error
}

func allCorpora() []corpus {
	return []corpus{sourceCorpus(), nodeCorpus(), agentCorpus(), noiseCorpus(), debianCorpus()}
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
	digest string // that is expected; "": any
	states []string
}

// chosen are the corpora asked for.
func (e *env) chosen() []corpus {
	var out []corpus
	for _, c := range allCorpora() {
		if slices.Contains(e.corpora, c.name) || len(e.corpora) == 0 && (!c.long || e.full) {
			out = append(out, c)
		}
	}
	return out
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
	var out []history
	for _, c := range e.chosen() {
		h, err := e.cached(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("build corpus %s: %w", c.name, err)
		}
		out = append(out, h)
	}
	return out, nil
}

// printCorpora builds the corpora and tells what they are.
func (e *env) printCorpora(ctx context.Context, w io.Writer) error {
	histories, err := e.states(ctx)
	if err != nil {
		return err
	}
	for _, h := range histories {
		infos, err := inspectAll(ctx, e, h)
		if err != nil {
			return err
		}
		r := &report{About: map[string]string{}, Digests: map[string]string{}}
		describe(r, h, infos)
		e.bar.clear()
		fmt.Fprintf(w, "%s %s\n   %s\n", h.name, r.Digests[h.name], r.About[h.name])
		for _, n := range r.Notes {
			fmt.Fprintln(w, "   note:", n)
		}
	}
	return nil
}

func (e *env) cachePath(c corpus) string {
	return filepath.Join(e.cache, fmt.Sprintf("%s.%d", c.name, c.recipe))
}

// cached gives a corpus from the cache, built first if it is not there. A directory of the cache is complete.
func (e *env) cached(ctx context.Context, c corpus) (history, error) {
	h := history{name: c.name, about: c.about, digest: c.digest}
	final := e.cachePath(c)
	if _, err := os.Stat(final); errors.Is(err, fs.ErrNotExist) {
		if err := e.build(ctx, c, final); err != nil {
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

func (e *env) build(ctx context.Context, c corpus, final string) (err error) {
	if gone := missing(c.programs); len(gone) > 0 {
		return fmt.Errorf("missing programs: %s (Debian's packages: %s)", strings.Join(gone, ", "), strings.Join(packagesOf(gone), ", "))
	}
	if c.root && os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	// Not in the scratch directory, which may be on another file system.
	dir, remove, err := e.guard.make(e.cache, "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := &builder{ws: filepath.Join(dir, "ws"), dir: dir, name: c.name, bar: e.bar, since: time.Now().Add(-time.Minute), mirror: e.mirror}
	for _, d := range []string{b.ws, filepath.Join(dir, "states")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := c.build(ctx, b); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, "states"), final)
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

	mirror string // of Debian's packages
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
