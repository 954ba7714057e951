package squashfs

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

//go:generate go test -run TestBrokenImages -update .

var update = flag.Bool("update", false, "rewrite testdata/broken")

const brokenDir = "../testdata/broken"

func allScenarios() []scenario {
	return slices.Concat(
		[]scenario{
			{name: "sound", make: func(*model) {}, readable: true},
			{name: "sound-big-directory", make: (*model).grow, readable: true},
		},
		superblockScenarios, metadataScenarios, inodeScenarios, fileScenarios, dirScenarios, extensionScenarios,
	)
}

// TestBrokenImages reads and checks each image of testdata/broken. The images are made from the scenarios.
func TestBrokenImages(t *testing.T) {
	known := map[string]bool{}
	for _, s := range allScenarios() {
		file := filepath.Join(brokenDir, s.name+".sqsh")
		known[s.name+".sqsh"] = true
		t.Run(s.name, func(t *testing.T) {
			m := soundModel()
			s.make(m)
			made := m.build()
			if *update {
				if err := os.WriteFile(file, made, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			img, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(img, made) {
				t.Error("the file is not what the scenario makes: run go generate ./squashfs")
			}
			var rules []string
			for _, v := range violations(t, img) {
				rules = append(rules, v.Rule)
			}
			all := strings.Join(rules, "\n")
			switch sound := s.rule == "" && s.readable; {
			case sound && len(rules) > 0:
				t.Errorf("violations of a sound image:\n%s", all)
			case !sound && (len(rules) == 0 || !strings.Contains(all, s.rule)):
				t.Errorf("violations:\n%s\nwant one with %q", all, s.rule)
			}
			switch err := readAll(img); {
			case err == nil && !s.readable:
				t.Error("everything was read without an error")
			case err != nil && (s.readable || !errors.Is(err, ErrCorrupt)):
				t.Errorf("reading: %v", err)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(brokenDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[filepath.Base(f)] && filepath.Ext(f) == ".sqsh" {
			t.Errorf("%s belongs to no scenario", f)
		}
	}
}

// violations runs Check, bounded in time.
func violations(t testing.TB, img []byte) []Violation {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var list []Violation
	if err := Check(ctx, bytes.NewReader(img), int64(len(img)),
		func(v Violation) { list = append(list, v) }); err != nil {
		t.Fatalf("check: %v", err)
	}
	return list
}

// maxRead bounds how much of a file readAll reads: sizes are only claims.
const maxRead = 1 << 20

// readAll reads everything that names lead to, each directory once, and looks each name up. It returns the first error.
func readAll(img []byte) error {
	im, err := Open(bytes.NewReader(img), int64(len(img)), Options{CacheBytes: 1 << 20})
	if err != nil {
		return err
	}
	seen := map[Ref]bool{}
	var first error
	note := func(err error) {
		if first == nil && err != nil && !errors.Is(err, io.EOF) {
			first = err
		}
	}
	for todo := []Ref{im.Root()}; len(todo) > 0; {
		ref := todo[0]
		todo = todo[1:]
		if seen[ref] || len(seen) > 2000 {
			continue
		}
		seen[ref] = true
		n, err := im.Inode(ref)
		if err != nil {
			note(err)
			continue
		}
		_, err = n.Xattrs()
		note(err)
		switch n.Attr().Mode & unix.S_IFMT {
		case unix.S_IFREG:
			_, err := n.Extents()
			note(err)
			n.Data()
			buf := make([]byte, min(n.Attr().Size, maxRead))
			_, err = n.ReadAt(buf, 0)
			note(err)
			_, err = n.ReadAt(buf[:min(len(buf), 100)], n.Attr().Size-50)
			if n.Attr().Size > 50 {
				note(err)
			}
		case unix.S_IFLNK:
			_, err := n.Readlink()
			note(err)
		case unix.S_IFDIR:
			for e, err := range n.ReadDir("") {
				if err != nil {
					note(err)
					break
				}
				todo = append(todo, e.Ref)
				switch found, err := n.Lookup(e.Name); {
				case errors.Is(err, fs.ErrNotExist):
					return errMissed
				case err == nil && found != e:
					return errMissed
				default:
					note(err)
				}
			}
			if _, err := n.Lookup("no such name"); !errors.Is(err, fs.ErrNotExist) {
				note(err)
			}
		}
	}
	if err := readFS(im); err != nil {
		note(err)
	}
	return first
}

var errMissed = errors.New("a name that is listed was not found, or was another")

// readFS walks the io/fs view, which must end.
func readFS(im *Image) error {
	steps := 0
	return fs.WalkDir(im.FS(), ".", func(_ string, _ fs.DirEntry, err error) error {
		if steps++; steps > 100000 {
			return errors.New("walk does not end")
		}
		if errors.Is(err, ErrCorrupt) {
			return nil // loops are refused here, which is not what is judged
		}
		return err
	})
}
