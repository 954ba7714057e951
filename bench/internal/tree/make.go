package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// perDir is how many files a directory of a made tree has.
const perDir = 100

// FileName names a file of a made tree.
func FileName(i int) string { return fmt.Sprintf("d%03d/d%02d/f%07d", i/perDir/100, i/perDir%100, i) }

// Make makes a tree of so many small files that differ.
func Make(ctx context.Context, dir string, files int) error {
	for i := range files {
		path := filepath.Join(dir, FileName(i))
		if i%perDir == 0 {
			if err := errors.Join(ctx.Err(), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
				return err
			}
		}
		if err := os.WriteFile(
			path, []byte(strings.Repeat(fmt.Sprintf("this is line of file %d\n", i), 8)), 0o644,
		); err != nil {
			return err
		}
	}
	return nil
}

// Edits are changes of a made tree, one after the other. Used by one goroutine.
type Edits struct {
	Files   int // of the tree
	Changed int // by each edit
	done    int // changes so far
}

// Edit changes files of the tree in dir, and reads them, so that the kernel has them in its caches.
func (e *Edits) Edit(dir string) error {
	for i := range e.Changed {
		e.done++
		path := filepath.Join(dir, FileName((e.done*7919+i)%e.Files))
		if e.Changed > 1 {
			path = filepath.Join(dir, FileName(i))
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("one line more " + strconv.Itoa(e.done) + "\n")
		if err == nil {
			_, err = f.ReadAt(make([]byte, 16), 0)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
