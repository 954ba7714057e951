package sandbox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Points that a life without mishaps does not come to.
var rarePoints = map[string]string{
	"stray upper removed": "TestKillPoints",

	"spaces of inode numbers surveyed":     "TestSpacesComeAgain",
	"further space of an upper recorded":   "uppers' TestWideHost",
	"further spaces of an upper forgotten": "uppers' TestWideHost",

	"apply to a directory begun":  "TestApplyToDirectoryKilled",
	"journal of an apply written": "TestApplyToDirectoryKilled",
	"journal of an apply removed": "TestApplyToDirectoryKilled",

	"documents of a lost snapshot removed": "catalog's TestSweepTied",
	"directory of services' mounts made":   "TestAPI/MountOfService",

	"capture committed":             "TestKernelKilled",
	"upper of the kernel settled":   "TestKernelKilled",
	"upper of the kernel abandoned": "TestKernelForce",

	"stray upper set aside": "TestOpenSetsAside",
	"marker mended":         "TestRebuildMarker",
	"pack removed":          "chunkstore's TestPowerLoss",
	"index rebuilt":         "chunkstore's TestPowerLoss",
	"index exchanged":       "chunkstore's TestPowerLoss",
	"index in place":        "chunkstore's TestPowerLoss",
	"index flushes":         "chunkstore's TestPowerLoss",
	"index flushed":         "chunkstore's TestPowerLoss",
	"index flattened":       "chunkstore's TestPowerLoss",
	"journal begun":         "chunkstore's TestPowerLoss",
	"journal replaced":      "chunkstore's TestPowerLoss",
	"pack cut":              "chunkstore's TestPowerLoss",
}

// parts are this package and those that it coordinates.
var parts = []string{".", "internal/catalog", "internal/layerstore", "internal/uppers"}

// eachFunc calls fn for every function of a package, its tests left out.
func eachFunc(t *testing.T, dir string, fn func(file string, f *ast.FuncDecl)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("sources in %s: %v, %v", dir, files, err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				fn(filepath.Base(path), f)
			}
		}
	}
}

// calls lists what a function calls, as package.Name, or .Name for methods, with the first argument if it is a string.
// Methods of a catalog, which tells its steps itself, are catalog.Name, or c.Name in its own package.
func calls(f *ast.FuncDecl) map[string][]string {
	all := map[string][]string{}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := "." + sel.Sel.Name
		if x, ok := sel.X.(*ast.SelectorExpr); ok && x.Sel.Name == "catalog" {
			name = "catalog" + name
		}
		if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "os" || x.Name == "unix" || x.Name == "layers" || x.Name == "c") {
			name = x.Name + name
		}
		arg := ""
		if len(call.Args) > 0 {
			if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				arg, _ = strconv.Unquote(lit.Value)
			}
		}
		all[name] = append(all[name], arg)
		return true
	})
	return all
}

// pointsVisited fails for points in the sources that a run did not come to.
func pointsVisited(t *testing.T, visited map[string]bool) {
	t.Helper()
	for _, dir := range append(slices.Clone(parts), "../chunkstore", "../chunkstore/internal/pack") {
		eachFunc(t, dir, func(file string, f *ast.FuncDecl) {
			for _, point := range calls(f)[".At"] {
				if !visited[point] && rarePoints[point] == "" {
					t.Errorf("%s, %s: nothing came to the point %q", file, f.Name.Name, point)
				}
			}
		})
	}
}

// TestPointsComplete fails for a function of this package, or of its parts, that changes what is on the disk without a
// point after it.
func TestPointsComplete(t *testing.T) {
	durable := map[string]bool{
		"os.Mkdir": true, "os.MkdirAll": true, "os.Rename": true, "os.Remove": true, "os.RemoveAll": true, "os.WriteFile": true,
		"os.Create": true, "os.OpenFile": true, "os.Symlink": true, "os.Link": true, "os.Truncate": true, "os.Chmod": true,
		"unix.Syncfs": true, "unix.Fsync": true, "unix.Renameat2": true, "unix.Unmount": true,
		".Update": true, "hosttree.WriteFile": true, "layers.Store": true, "layers.Merge": true, ".Rollback": true, ".Seal": true,
	}
	elsewhere := map[string]string{
		"checkMountpoint": "outside of the home",
		"leave":           "outside of the home",
		"writeImageFile":  "outside of the home",
		"detachStale":     "a mount is not durable",
		"makeDirs":        "before the marker nothing is a home",
		"removeMade":      "before the marker nothing is a home",
		"takeLock":        "a lock is not durable",
		"makeEmptyDir":    "made again by every open",
		"SetHome":         "the store tells",
		"freeze":          "processes of a control group",
		"thaw":            "processes of a control group",
		"Rollback":        "rollbackLive tells",
		"streamImage":     "a file without a name",
		"open":            "outside of the home",
		"left":            "outside of the home",
		"imageLoader":     "outside of the home",
	}
	for _, dir := range parts {
		eachFunc(t, dir, func(file string, f *ast.FuncDecl) {
			c := calls(f)
			for name := range c {
				if durable[name] && c[".At"] == nil && elsewhere[f.Name.Name] == "" {
					t.Errorf("%s: %s calls %s, and no failpoint follows", file, f.Name.Name, name)
				}
			}
		})
	}
}
