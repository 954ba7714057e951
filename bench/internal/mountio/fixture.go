package mountio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/suite"
)

// fixture is what the workloads of one tree work on. lower holds
//
//	tree/    a git repository of the tree, at branch A; branch B differs in every sixth file
//	gomod/   a Go module of many small packages, whose build is in gocache
//	npm/     a node project with a lock file, whose packages are in npmDir
//	small/   4,000 files of 4 KiB, 100 in a directory
//	big.bin  256 MiB that do not compress
//
// and nothing writes to it. Used by one goroutine.
type fixture struct {
	fixtureFacts
	name    string // of the tree
	dir     string // of everything, on the disk that is measured
	lower   string
	tarball string // of tree, without .git
	gocache string
	npmDir  string // cache of npm
	repeat  int    // see repeats
	self    string // this program, for workloads that are part of it
	home    *engine.Home
}

// fixtureFacts are what cannot be read from the files of a fixture; kept beside them as JSON.
type fixtureFacts struct {
	NPM      bool   `json:"npm"`      // the npm cache could be filled
	Snapshot string `json:"snapshot"` // of lower, stored; "" if there is none yet
}

const (
	nodeBefore = "2025-10-25" // fixes what the node project's packages depend on
	bigSize    = 256 << 20
	smallFiles = 4000
	goPackages = 150
)

// newFixture makes the fixture of a tree in dir, or copies the one that an earlier run has kept.
func newFixture(ctx context.Context, e *suite.Env, r *report.Report, tree, dir string) (*fixture, error) {
	tree, err := filepath.Abs(tree)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	f := &fixture{
		name: filepath.Base(filepath.Dir(tree)) + "/" + filepath.Base(tree), dir: filepath.Join(dir, "fixture"),
	}
	f.lower, f.tarball = filepath.Join(f.dir, "lower"), filepath.Join(f.dir, "tree.tar")
	f.gocache = filepath.Join(f.dir, "gocache")
	f.npmDir = filepath.Join(f.dir, "npm-cache")
	f.home = &engine.Home{
		Engine: engine.Engine{Binary: filepath.Join(f.dir, "snapfs")}, Dir: filepath.Join(f.dir, "home"),
	}
	if f.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	kept := ""
	if e.Fixture != "" {
		kept = filepath.Join(e.Fixture, report.FileName(tree))
	}
	e.Bar.Say("%s: preparing", f.name)
	if err := f.load(ctx, kept); err == nil {
		return f, f.home.Engine.Build(ctx)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(f.lower, 0o755); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	for _, step := range []func(context.Context) error{
		f.home.Engine.Build,
		func(ctx context.Context) error { return f.makeRepository(ctx, tree) },
		f.makeGoModule,
		func(context.Context) error { return f.makeFiles() },
		f.makeDummy,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.makeNode(ctx, filepath.Join(e.Cache, "npm-io")); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.Note("npm ci: not measured: %v", err)
	}
	return f, f.keep(ctx, kept)
}

const factsName = "facts.json"

// load copies a fixture that was kept; it is an error that fs.ErrNotExist describes if there is none.
func (f *fixture) load(ctx context.Context, kept string) error {
	if kept == "" {
		return fs.ErrNotExist
	}
	facts, err := os.ReadFile(filepath.Join(kept, factsName))
	if err != nil {
		return fmt.Errorf("load fixture: %w", err)
	}
	if err := json.Unmarshal(facts, &f.fixtureFacts); err != nil {
		return fmt.Errorf("load fixture: %w", err)
	}
	f.home.Snapshot = f.Snapshot
	return program.Run(ctx, "cp", "-a", kept, f.dir)
}

// keep stores the lower and copies everything, for the next run.
func (f *fixture) keep(ctx context.Context, kept string) error {
	if kept == "" {
		return nil
	}
	if err := f.home.StoreTree(ctx, f.lower); err != nil {
		return err
	}
	if err := f.home.Run(ctx, nil, "stop"); err != nil {
		return err
	}
	f.Snapshot = f.home.Snapshot
	facts, err := json.Marshal(f.fixtureFacts)
	if err != nil {
		return fmt.Errorf("keep fixture: %w", err)
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return fmt.Errorf("keep fixture: %w", err)
	}
	if err := program.Run(ctx, "cp", "-a", f.dir+"/.", kept); err != nil {
		return err
	}
	// Last: it says that all is there.
	if err := os.WriteFile(filepath.Join(kept, factsName), facts, 0o644); err != nil {
		return fmt.Errorf("keep fixture: %w", err)
	}
	return nil
}

// close ends the daemon and removes everything.
func (f *fixture) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := os.Stat(f.home.Dir); err == nil {
		if err := f.home.Run(ctx, nil, "stop"); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove the fixture: %w", err)
	}
	return nil
}
