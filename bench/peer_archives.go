package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// files is what the archive peers share: one file per state in dir.
type files struct {
	dir    string
	suffix string
}

func (f files) path(i int) string { return filepath.Join(f.dir, fmt.Sprintf("%04d%s", i, f.suffix)) }

func (f files) settle(context.Context) error { return nil }

func (f files) size(context.Context) (int64, error) { return allocated(f.dir) }

func (f files) close(context.Context) error { return nil }

func (f files) drop(_ context.Context, from, to int) error {
	for i := from; i < to; i++ {
		if err := os.Remove(f.path(i)); err != nil {
			return fmt.Errorf("delete state: %w", err)
		}
	}
	return nil
}

func openFiles(dir, suffix string) (files, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return files{}, fmt.Errorf("make repository: %w", err)
	}
	return files{dir, suffix}, nil
}

// squashPeer keeps one squashfs image per state, as container backups do.
func squashPeer(compression string) peer {
	return peer{
		name: "mksquashfs " + compression, programs: []string{"mksquashfs", "unsquashfs"},
		open: func(_ context.Context, dir string) (keeper, error) {
			f, err := openFiles(dir, ".sqsh")
			return squash{f, compression}, err
		},
	}
}

type squash struct {
	files
	compression string
}

func (s squash) store(ctx context.Context, i int, _, state string) error {
	return tool{}.run(ctx, "mksquashfs", state, s.path(i), "-comp", s.compression, "-noappend", "-no-progress", "-quiet")
}

func (s squash) restore(ctx context.Context, i int, dest string) error {
	return tool{}.run(ctx, "unsquashfs", "-f", "-no-progress", "-quiet", "-d", dest, s.path(i))
}

// tarPeer keeps a gzipped tar of what changed per state, which is what an image layer ships.
func tarPeer() peer {
	return peer{
		name: "tar gzip of changes", programs: []string{"tar", "gzip"}, exact: true,
		open: func(_ context.Context, dir string) (keeper, error) {
			f, err := openFiles(dir, ".tar.gz")
			return tarball{f}, err
		},
	}
}

// tarball holds, beside the archive, the list of what is gone since the state before.
type tarball struct{ files }

func (t tarball) gone(i int) string { return filepath.Join(t.dir, fmt.Sprintf("%04d.gone", i)) }

func (t tarball) store(ctx context.Context, i int, prev, state string) error {
	added, gone, err := changed(ctx, prev, state)
	if err != nil {
		return err
	}
	added = withParents(added, gone)
	if err := os.WriteFile(t.gone(i), lines(gone), 0o644); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	// In the format that keeps fractions of seconds, and without times that no image has.
	return tool{stdin: lines(added)}.run(ctx, "tar", "--format=posix", "--pax-option=delete=atime,delete=ctime",
		"-C", state, "-czf", t.path(i), "--no-recursion", "--null", "-T", "-")
}

// withParents adds the directories whose times change when entries are extracted or removed; those that are
// gone themselves are left out.
func withParents(added, gone []string) []string {
	set := map[string]bool{}
	for _, p := range slices.Concat(added, gone) {
		set[filepath.Dir(p)] = true
	}
	for _, p := range added {
		set[p] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// lines joins paths for tar -T and for reading back, ended by NUL.
func lines(paths []string) []byte {
	var b bytes.Buffer
	for _, p := range paths {
		b.WriteString(p)
		b.WriteByte(0)
	}
	return b.Bytes()
}

func (t tarball) restore(ctx context.Context, i int, dest string) error {
	for j := range i + 1 {
		gone, err := os.ReadFile(t.gone(j))
		if err != nil {
			return fmt.Errorf("read list: %w", err)
		}
		for p := range bytes.SplitSeq(bytes.TrimSuffix(gone, []byte{0}), []byte{0}) {
			if len(p) == 0 {
				continue
			}
			if err := os.RemoveAll(filepath.Join(dest, string(p))); err != nil {
				return fmt.Errorf("apply list: %w", err)
			}
		}
		if err := (tool{}).run(ctx, "tar", "-C", dest, "-xzpf", t.path(j), "--delay-directory-restore"); err != nil {
			return err
		}
	}
	return nil
}

func (t tarball) drop(context.Context, int, int) error { return errUnsupported }
