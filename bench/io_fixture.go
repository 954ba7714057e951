package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
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
	binary  string // snapfs
	home    string
}

// fixtureFacts are what the files of a fixture do not tell; kept beside them as JSON.
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
func newFixture(ctx context.Context, e *env, r *report, tree, dir string) (*fixture, error) {
	tree, err := filepath.Abs(tree)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	f := &fixture{
		name: filepath.Base(filepath.Dir(tree)) + "/" + filepath.Base(tree), dir: filepath.Join(dir, "fixture"),
	}
	f.lower, f.tarball, f.gocache = filepath.Join(f.dir, "lower"), filepath.Join(f.dir, "tree.tar"), filepath.Join(f.dir, "gocache")
	f.npmDir, f.binary, f.home = filepath.Join(f.dir, "npm-cache"), filepath.Join(f.dir, "snapfs"), filepath.Join(f.dir, "home")
	if f.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	kept := ""
	if e.fixture != "" {
		kept = filepath.Join(e.fixture, fileName(tree))
	}
	e.bar.say("%s: preparing", f.name)
	if err := f.load(ctx, kept); err == nil {
		return f, f.buildBinary(ctx)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(f.lower, 0o755); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	for _, step := range []func(context.Context) error{
		f.buildBinary,
		func(ctx context.Context) error { return f.makeRepository(ctx, tree) },
		f.makeGoModule,
		func(context.Context) error { return f.makeFiles() },
		f.makeDummy,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.makeNode(ctx, filepath.Join(e.cache, "npm-io")); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.note("npm ci: not measured: %v", err)
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
	return tool{}.run(ctx, "cp", "-a", kept, f.dir)
}

// keep stores the lower and copies everything, for the next run.
func (f *fixture) keep(ctx context.Context, kept string) error {
	if kept == "" {
		return nil
	}
	if err := f.storeLower(ctx); err != nil {
		return err
	}
	if err := f.snapfs(ctx, nil, "stop"); err != nil {
		return err
	}
	facts, err := json.Marshal(f.fixtureFacts)
	if err != nil {
		return fmt.Errorf("keep fixture: %w", err)
	}
	if err := os.MkdirAll(kept, 0o755); err != nil {
		return fmt.Errorf("keep fixture: %w", err)
	}
	if err := (tool{}).run(ctx, "cp", "-a", f.dir+"/.", kept); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(kept, factsName), facts, 0o644); err != nil { // last: it says that all is there
		return fmt.Errorf("keep fixture: %w", err)
	}
	return nil
}

// close ends the daemon and removes everything.
func (f *fixture) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := os.Stat(f.home); err == nil {
		if err := f.snapfs(ctx, nil, "stop"); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove the fixture: %w", err)
	}
	return nil
}

// buildBinary builds the command line from the sources that this program was built from.
func (f *fixture) buildBinary(ctx context.Context) error {
	return buildSnapfs(ctx, f.binary)
}

// makeRepository copies the tree and commits it twice.
func (f *fixture) makeRepository(ctx context.Context, tree string) error {
	const script = `set -e
cp -a "$1" tree
chown 0:0 tree
find tree -name .git -prune -exec rm -rf {} +
tar -cf "$2" tree
cd tree
git init -q -b A
# Whatever the tree asks git to do with its contents, they are bytes here.
echo '* -text !eol !filter !ident !working-tree-encoding' >.git/info/attributes
git config user.email bench@localhost
git config user.name bench
git config gc.auto 0
git add -A -f
git commit -q --allow-empty -m A
git checkout -q -b B
git ls-files -z | awk 'BEGIN { RS = ORS = "\0" } NR % 6 == 1' | xargs -0 -n 100 sh -c 'for f; do [ -L "$f" ] || echo more >>"$f"; done' sh
git add -A -f
git commit -q --allow-empty -m B
git checkout -q A
git repack -q -a -d
git status >/dev/null
`
	env := []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	return tool{dir: f.lower, env: env}.run(ctx, "sh", "-c", script, "sh", tree, f.tarball)
}

// makeGoModule writes packages that use each other, and fills the build cache.
func (f *fixture) makeGoModule(ctx context.Context) error {
	mod := filepath.Join(f.lower, "gomod")
	files := map[string]string{"go.mod": "module bench.test/m\n\ngo 1.21\n"}
	var imports, calls strings.Builder
	for i := range goPackages {
		name := fmt.Sprintf("p%03d", i)
		fmt.Fprintf(&imports, "\t\"bench.test/m/%s\"\n", name)
		fmt.Fprintf(&calls, "\tn += %s.F0()\n", name)
		for j := range 8 {
			files[fmt.Sprintf("%s/f%d.go", name, j)] = fmt.Sprintf("package %s\n\n// F%d gives a number.\nfunc F%d() int { return %d }\n", name, j, j, i*8+j)
		}
	}
	files["main.go"] = "package main\n\nimport (\n" + imports.String() + ")\n\nfunc main() {\n\tn := 0\n" + calls.String() + "\tprintln(n)\n}\n"
	for name, text := range files {
		path := filepath.Join(mod, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write go module: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write go module: %w", err)
		}
	}
	return tool{dir: mod, env: f.goEnv()}.run(ctx, "go", "build", "-o", filepath.Join(f.dir, "gomod.out"), ".")
}

// goEnv lets builds in any directory share what was built before.
func (f *fixture) goEnv() []string {
	return []string{"GOCACHE=" + f.gocache, "GOFLAGS=-trimpath", "GOWORK=off", "GOTOOLCHAIN=local"}
}

// npmArgs are for every call of npm.
func (f *fixture) npmArgs(args ...string) []string {
	return append(args, "--cache", f.npmDir, "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
}

// makeDummy makes a tree of one file, see loadPrograms.
func (f *fixture) makeDummy(ctx context.Context) error {
	const script = `set -e
mkdir -p dummy/tree
cd dummy/tree
echo x >x
git init -q
git config user.email bench@localhost
git config user.name bench
git add x
git commit -q -m x
`
	return tool{dir: f.dir, env: []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}}.run(ctx, "sh", "-c", script)
}

// makeNode writes a project and has npm fetch what it needs, as far as it is not in cache.
func (f *fixture) makeNode(ctx context.Context, cache string) error {
	dir := filepath.Join(f.lower, "npm")
	const project = `{ "name": "bench", "version": "1.0.0", "private": true, "dependencies": { "express": "4.21.2", "eslint": "9.17.0" } }
`
	if gone := missing([]string{"npm"}); len(gone) > 0 {
		return fmt.Errorf("missing %s", strings.Join(gone, ", "))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write node project: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(project), 0o644); err != nil {
		return fmt.Errorf("write node project: %w", err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("make cache of npm: %w", err)
	}
	local := f.npmDir
	f.npmDir = cache
	t := tool{dir: dir}
	err := t.run(ctx, "npm", f.npmArgs("install", "--before="+nodeBefore)...)
	f.npmDir = local
	if err == nil {
		err = tool{}.run(ctx, "cp", "-a", cache, local)
	}
	if err != nil {
		return err
	}
	// What ci looks at is cached by ci.
	if err := t.run(ctx, "npm", f.npmArgs("ci")...); err != nil {
		return err
	}
	f.NPM = true
	return os.RemoveAll(filepath.Join(dir, "node_modules"))
}

// makeFiles writes the files of the single operations and of fio.
func (f *fixture) makeFiles() error {
	noise := rand.NewChaCha8([32]byte([]byte("snapfs bench: small and large.   ")[:32]))
	page := make([]byte, 4096)
	for i := range smallFiles {
		path := filepath.Join(f.lower, smallName(i))
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return fmt.Errorf("write small files: %w", err)
			}
		}
		_, _ = noise.Read(page) // never fails
		if err := os.WriteFile(path, page, 0o644); err != nil {
			return fmt.Errorf("write small files: %w", err)
		}
	}
	big, err := os.Create(filepath.Join(f.lower, "big.bin"))
	if err != nil {
		return fmt.Errorf("write big file: %w", err)
	}
	buf := make([]byte, 1<<20)
	for n := 0; n < bigSize && err == nil; n += len(buf) {
		_, _ = noise.Read(buf) // never fails
		_, err = big.Write(buf)
	}
	if cerr := big.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write big file: %w", err)
	}
	return nil
}

func smallName(i int) string { return fmt.Sprintf("small/d%03d/f%05d", i/100, i) }
