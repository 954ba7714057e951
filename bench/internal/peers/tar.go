package peers

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/tree"
)

// Tar keeps a gzipped tar of what changed per state, which is what an image layer ships.
func Tar() subject.Subject[subject.Store] {
	return subject.Subject[subject.Store]{
		Name: "tar gzip of changes", Programs: []string{"tar", "gzip"}, Keeps: subject.KeepsAll,
		Open: func(_ context.Context, at subject.Site) (subject.Store, error) {
			dir := filepath.Join(at.Dir, "repo")
			f, err := openFiles(dir, ".tar.gz")
			return tarball{f}, err
		},
	}
}

// tarball holds, beside the archive, the list of what is gone since the state before.
type tarball struct{ files }

func (t tarball) gone(i int) string { return filepath.Join(t.dir, fmt.Sprintf("%04d.gone", i)) }

func (t tarball) Store(ctx context.Context, i int, prev, state string) error {
	added, gone, err := tree.Changed(ctx, prev, state)
	if err != nil {
		return err
	}
	added = withParents(added, gone)
	if err := os.WriteFile(t.gone(i), lines(gone), 0o644); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	// In the format that keeps fractions of seconds, and without times that no image has.
	return program.Setup{Stdin: lines(added)}.Run(
		ctx, "tar", "--format=posix", "--pax-option=delete=atime,delete=ctime", "-C", state, "-czf", t.path(i),
		"--no-recursion", "--null", "-T", "-",
	)
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

func (t tarball) Restore(ctx context.Context, i int, dest string) error {
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
		if err := program.Run(ctx, "tar", "-C", dest, "-xzpf", t.path(j), "--delay-directory-restore"); err != nil {
			return err
		}
	}
	return nil
}

func (t tarball) Drop(context.Context, int, int) error { return subject.ErrNotOffered }
