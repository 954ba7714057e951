package lockorder

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTree holds that the tree and the types name the same classes, in the same order.
func TestTree(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "tree.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var types, drawn []string
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok {
			types = append(types, s.Name.Name)
		}
		return true
	})
	for _, c := range parse(Tree)[1:] {
		drawn = append(drawn, c.name)
	}
	if !slices.Equal(types, drawn) {
		t.Errorf("types %v\ndrawn %v", types, drawn)
	}
	drawing, err := os.ReadFile("../../docs/LOCKS.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(drawing), Tree) {
		t.Error("docs/LOCKS.md has another tree")
	}
}

// TestEveryLockHasAClass holds that the packages with an order have no mutex without a class, that each class is that
// of one field, and that the tree says where that is.
func TestEveryLockHasAClass(t *testing.T) {
	places := map[string]string{} // of classes, by the tree
	for line := range strings.Lines(Tree) {
		if words := strings.Fields(strings.TrimLeft(line, " │├└─")); len(words) > 1 {
			i := 1
			for strings.HasPrefix(words[i], "(") {
				i++
			}
			if at, ok := strings.CutSuffix(words[i], ":"); ok {
				places[words[0]] = at
			}
		}
	}
	used := map[string][]string{}
	for _, dir := range []string{"sandbox", "layers", "fs", "chunkstore", "squashfs", "internal/fairshare", "internal/holder", "internal/readset"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` }) {
				return nil // for tests only
			}
			pkg, err := filepath.Rel("../..", filepath.Dir(path))
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if isName(n.X, "sync") && (n.Sel.Name == "Mutex" || n.Sel.Name == "RWMutex") {
						t.Errorf("%s: a sync.%s, which has no class", path, n.Sel.Name)
					}
				case *ast.IndexExpr:
					of, ok := n.X.(*ast.SelectorExpr)
					class, is := n.Index.(*ast.SelectorExpr)
					if ok && is && (isName(of.X, "lockorder") || isName(of.X, "keylock")) {
						used[class.Sel.Name] = append(used[class.Sel.Name], pkg)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range parse(Tree)[1:] {
		if got := used[c.name]; len(got) != 1 || got[0] != places[c.name] {
			t.Errorf("%s is a lock of %q, in the tree of %s", c.name, got, places[c.name])
		}
		delete(used, c.name)
	}
	for class, in := range used {
		t.Errorf("%v: %s is not in the tree", in, class)
	}
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
