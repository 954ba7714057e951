package mountio

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"snapfs/bench/internal/program"
)

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
	return program.Setup{Dir: f.lower, Env: env}.Run(ctx, "sh", "-c", script, "sh", tree, f.tarball)
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
			files[fmt.Sprintf("%s/f%d.go", name, j)] = fmt.Sprintf(
				"package %s\n\n// F%d gives a number.\nfunc F%d() int { return %d }\n",
				name,
				j,
				j,
				i*8+j,
			)
		}
	}
	files["main.go"] = "package main\n\nimport (\n" + imports.String() + ")\n\n" +
		"func main() {\n\tn := 0\n" + calls.String() + "\tprintln(n)\n}\n"
	for name, text := range files {
		path := filepath.Join(mod, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write go module: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write go module: %w", err)
		}
	}
	return program.Setup{Dir: mod, Env: f.goEnv()}.Run(ctx, "go", "build", "-o", filepath.Join(f.dir, "gomod.out"), ".")
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
	return program.Setup{Dir: f.dir, Env: []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}}.Run(
		ctx, "sh", "-c", script,
	)
}

// makeNode writes a project and has npm fetch what it needs, as far as it is not in cache.
func (f *fixture) makeNode(ctx context.Context, cache string) error {
	dir := filepath.Join(f.lower, "npm")
	const project = `{ "name": "bench", "version": "1.0.0", "private": true, "dependencies": { "express": "4.21.2", "eslint": "9.17.0" } }
`
	if gone := program.Missing([]string{"npm"}); len(gone) > 0 {
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
	t := program.Setup{Dir: dir}
	err := t.Run(ctx, "npm", f.npmArgs("install", "--before="+nodeBefore)...)
	f.npmDir = local
	if err == nil {
		err = program.Run(ctx, "cp", "-a", cache, local)
	}
	if err != nil {
		return err
	}
	// What ci looks at is cached by ci.
	if err := t.Run(ctx, "npm", f.npmArgs("ci")...); err != nil {
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
