package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

const (
	// maxAttempts is how many columns a comparison can have.
	maxAttempts = 8
	// maxCompared bounds the files of a comparison that are remembered; the others are only counted.
	maxCompared = 100_000
)

func (a *app) compareCommand() *cobra.Command {
	x := comparison{a: a, rows: map[string]*compareRow{}}
	var part api.Part
	cmd := &cobra.Command{
		Use:   "compare A B [C...] [--stat] [-- PATH...]",
		Short: "show several attempts beside each other",
		Long: fmt.Sprintf(`Shows what two to %d attempts, workspaces or snapshots that stem from the same state, have changed
since then: of each how many files it added, changed and deleted, how many lines it gained and lost,
and by how many bytes the files grew. Then, file by file, what became of it in each attempt:

  +3 -1    changed, with so many lines gained and lost    A +3     added
  same     as in an attempt further left, if as in the    D        deleted
           first that has changed it; else "as NAME"      M        changed, without lines
  -        as it was

The last column names pairs of attempts that cannot both be applied as they are: 'snapfs apply' would
stop at the file. Conflicts at other paths, as of directories, are listed below. With --stat, there
is no list of files.

They are compared with the newest state that all of them have below them, or with snapshot --base. If
no snapshot of that was there, it gets one without a name, which expires after seven days. What is in
.git at the top is left out. Equal files have the same contents, type and executable bit; owners and
times do not count. No more than --limit files are listed, those with conflicts first. Of more than
%d, only sums are told.

%s`, maxAttempts, maxCompared, partHelp),
		Example: "  snapfs compare one two\n  snapfs compare one two three --base app:base --stat\n" +
			"  snapfs compare one two --json | jq '.files[] | select(.conflicts)'",
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			args, part.Paths = partArgs(cmd, args)
			if len(args) > maxAttempts {
				return usagef("no more than %d attempts can be compared", maxAttempts)
			}
			if len(slices.Compact(slices.Sorted(slices.Values(args)))) < len(args) {
				return usagef("an attempt is named twice")
			}
			part.Exclude = append([]string{"/.git"}, part.Exclude...)
			x.names, x.part = args, part
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				x.c = c
				return x.run(cmd.Context())
			})
		},
	}
	partFlags(cmd, &part, func(_ *cobra.Command, args []string) error {
		if len(args) < 2 {
			return usagef("name two attempts or more")
		}
		return nil
	})
	f := cmd.Flags()
	f.StringVar(&x.base, "base", "", "snapshot `SNAP` that all stem from (default: the newest one known)")
	f.BoolVar(&x.stat, "stat", false, "only tell the sums")
	f.IntVar(&x.limit, "limit", 1000, "list at most `N` files")
	return cmd
}

// comparison is a call of compare.
type comparison struct {
	a     *app
	c     api.API
	names []string
	base  string
	part  api.Part
	stat  bool
	limit int

	res  compareResult
	rows map[string]*compareRow
}

// compareResult is what compare prints.
type compareResult struct {
	Base     string           `json:"base"` // snapshot
	Attempts []compareAttempt `json:"attempts"`
	// Files are those listed, of Total that any attempt has changed; nil with --stat.
	Files []*compareRow `json:"files"`
	Total int           `json:"total"`
	// Conflicts are all that were found, also those of Files.
	Conflicts []compareConflict `json:"conflicts"`
}

// compareAttempt sums up an attempt.
type compareAttempt struct {
	Name      string `json:"name"`
	Added     int    `json:"added"`
	Changed   int    `json:"changed"`
	Deleted   int    `json:"deleted"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Bytes     int64  `json:"bytes"` // of the files that were added or changed, now
	OldBytes  int64  `json:"old_bytes"`
}

// compareRow is a file in all attempts.
type compareRow struct {
	Path      string            `json:"path"`
	RawPath   []byte            `json:"raw_path,omitempty"`
	Attempts  []*compareCell    `json:"attempts"` // in their order; null: it is as it was
	Conflicts []compareConflict `json:"conflicts,omitempty"`
}

// compareCell is a file in one attempt.
type compareCell struct {
	Kind      string `json:"kind"` // A M D T
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Binary    bool   `json:"binary,omitempty"`
	Size      int64  `json:"size"`
	// SameAs is the first attempt in which the file ends equal, if that is another one.
	SameAs string `json:"same_as,omitempty"`
}

// compareConflict is a conflict between two attempts.
type compareConflict struct {
	A string `json:"a"`
	B string `json:"b"`
	api.ApplyConflict
}

func (x *comparison) run(ctx context.Context) error {
	if err := x.findBase(ctx); err != nil {
		return err
	}
	x.res.Conflicts = []compareConflict{}
	for i, name := range x.names {
		if err := x.attempt(ctx, i, name); err != nil {
			return err
		}
	}
	for j := range x.names {
		for i := range j {
			if err := x.pair(ctx, i, j); err != nil {
				return err
			}
		}
	}
	x.res.Total = len(x.rows)
	x.list()
	return x.a.result(x.res, func(w io.Writer) error {
		if err := x.printSums(w); err != nil || x.stat {
			return err
		}
		return x.printFiles(w)
	})
}

// findBase finds the snapshot that all attempts stem from.
func (x *comparison) findBase(ctx context.Context) error {
	if x.base == "" {
		got, err := metered{x.c, x.a}.Base(ctx, api.BaseRequest{Access: x.a.access(), Of: x.names})
		x.res.Base = got.Snapshot.ID
		return err
	}
	o, err := x.c.Show(ctx, api.RefRequest{Access: x.a.access(), Ref: x.base})
	if err != nil {
		return err
	}
	if o.Snapshot == nil {
		return usagef("--base %s: it is no snapshot", quote(x.base))
	}
	x.res.Base = o.Snapshot.ID
	return nil
}

// attempt reads what an attempt has changed.
func (x *comparison) attempt(ctx context.Context, i int, name string) error {
	sum := compareAttempt{Name: name}
	r := api.DiffRequest{Access: x.a.access(), Part: x.part, A: x.res.Base, B: name, Stat: true}
	err := metered{x.c, x.a}.Diff(ctx, r, func(ch api.Change) error {
		if ch.Mode&unix.S_IFMT == unix.S_IFDIR || unchangedFile(ch) {
			return nil
		}
		cell := &compareCell{Kind: ch.Kind, Size: ch.Size}
		if ch.Stat != nil {
			cell.Additions, cell.Deletions, cell.Binary = ch.Stat.Additions, ch.Stat.Deletions, ch.Stat.Binary
		}
		if ch.Kind == "R" { // a deletion and an addition, as it is for the others
			sum.Deleted++
			x.put(i, rawPath(ch.OldPath, ch.RawOldPath), &compareCell{Kind: "D"})
			cell.Kind = "A"
		}
		switch cell.Kind {
		case "A":
			sum.Added++
		case "D":
			sum.Deleted++
		default:
			sum.Changed++
		}
		sum.Additions += cell.Additions
		sum.Deletions += cell.Deletions
		sum.Bytes += ch.Size
		sum.OldBytes += ch.OldSize
		x.put(i, rawPath(ch.Path, ch.RawPath), cell)
		return nil
	})
	x.res.Attempts = append(x.res.Attempts, sum)
	return err
}

// put notes what became of a file.
func (x *comparison) put(i int, path string, cell *compareCell) {
	row := x.rows[path]
	if row == nil {
		if len(x.rows) == maxCompared {
			return
		}
		row = &compareRow{Path: path, RawPath: api.RawPath(path), Attempts: make([]*compareCell, len(x.names))}
		x.rows[path] = row
	}
	row.Attempts[i] = cell
}

// unchangedFile reports whether a change is one of an owner, a time or an attribute only.
func unchangedFile(ch api.Change) bool {
	return ch.Kind == "M" && ch.Stat != nil && !ch.Stat.Binary && ch.Stat.Additions == 0 && ch.Stat.Deletions == 0 &&
		(ch.Mode^ch.OldMode)&unix.S_IXUSR == 0 && ch.Size == ch.OldSize
}

// pair finds out which files end equal in two attempts, and what is in conflict.
func (x *comparison) pair(ctx context.Context, i, j int) error {
	same := map[string]bool{} // files of both
	var ask []string
	plain := true
	for path, row := range x.rows {
		if a, b := row.Attempts[i], row.Attempts[j]; a != nil && b != nil {
			same[path] = true
			if a.Kind != "D" || b.Kind != "D" {
				ask = append(ask, path)
				plain = plain && utf8.ValidString(path)
			}
		}
	}
	slices.Sort(ask)
	differ := func(part api.Part) error {
		r := api.DiffRequest{Access: x.a.access(), Part: part, A: x.names[i], B: x.names[j], Stat: true}
		return x.c.Diff(ctx, r, func(ch api.Change) error {
			if !unchangedFile(ch) {
				delete(same, rawPath(ch.Path, ch.RawPath))
				delete(same, rawPath(ch.OldPath, ch.RawOldPath))
			}
			return nil
		})
	}
	switch {
	case len(ask) > 0 && plain:
		for some := range api.PathParts(ask) {
			if err := differ(api.Part{Paths: some}); err != nil {
				return err
			}
		}
	case len(ask) > 0: // a request can only have paths that are UTF-8
		if err := differ(api.Part{Exclude: []string{"/.git"}}); err != nil {
			return err
		}
	}
	for path := range same {
		if cell := x.rows[path].Attempts[j]; cell.SameAs == "" {
			cell.SameAs = x.names[i]
		}
	}
	got, err := x.c.Conflicts(ctx, api.ConflictsRequest{
		Access: x.a.access(), Base: x.res.Base, A: x.names[i], B: x.names[j],
	})
	if err != nil {
		return err
	}
	for _, found := range got.Conflicts {
		if found.Path == ".git" || strings.HasPrefix(found.Path, ".git/") || same[found.Path] {
			continue
		}
		conflict := compareConflict{A: x.names[i], B: x.names[j], ApplyConflict: found}
		if row := x.rows[found.Path]; row != nil {
			row.Conflicts = append(row.Conflicts, conflict)
		} else if !x.part.All() && len(x.part.Exclude)+len(x.part.Paths) > 1 || x.part.GitIgnore {
			continue // of what is left out
		}
		x.res.Conflicts = append(x.res.Conflicts, conflict)
	}
	return nil
}

// list chooses the files that are listed.
func (x *comparison) list() {
	if x.stat {
		return
	}
	all := slices.SortedFunc(maps.Values(x.rows), func(a, b *compareRow) int {
		return cmp.Or(cmp.Compare(min(1, len(b.Conflicts)), min(1, len(a.Conflicts))), strings.Compare(a.Path, b.Path))
	})
	x.res.Files = all[:min(len(all), max(0, x.limit))]
	slices.SortFunc(x.res.Files, func(a, b *compareRow) int { return strings.Compare(a.Path, b.Path) })
}

// printSums prints a line for each attempt.
func (x *comparison) printSums(w io.Writer) error {
	conflicts := map[string]map[string]bool{}
	for _, c := range x.res.Conflicts {
		for _, name := range []string{c.A, c.B} {
			if conflicts[name] == nil {
				conflicts[name] = map[string]bool{}
			}
			conflicts[name][c.Path] = true
		}
	}
	var rows [][]string
	for _, s := range x.res.Attempts {
		rows = append(rows, []string{
			quote(s.Name), fmt.Sprint(s.Added), fmt.Sprint(s.Changed), fmt.Sprint(s.Deleted),
			fmt.Sprintf("+%d -%d", s.Additions, s.Deletions), size(s.Bytes - s.OldBytes), fmt.Sprint(len(conflicts[s.Name])),
		})
	}
	return table(w, "ATTEMPT ADDED CHANGED DELETED LINES BYTES CONFLICTS", rows)
}

// printFiles prints a line for each file, and the conflicts elsewhere.
func (x *comparison) printFiles(w io.Writer) error {
	out := bufio.NewWriter(w)
	if len(x.res.Files) > 0 {
		fmt.Fprintln(out)
	}
	err := columns(out, func(t io.Writer) {
		if len(x.res.Files) == 0 {
			return
		}
		var names []string
		for _, name := range x.names {
			names = append(names, quote(name))
		}
		fmt.Fprintf(t, "FILE\t%s\tCONFLICT\n", strings.Join(names, "\t"))
		for _, row := range x.res.Files {
			line := []string{quote(row.Path)}
			for _, cell := range row.Attempts {
				line = append(line, x.cellText(row, cell))
			}
			var pairs []string
			for _, c := range row.Conflicts {
				pairs = append(pairs, fmt.Sprintf("%s/%s: %s", quote(c.A), quote(c.B), c.Kind))
			}
			fmt.Fprintln(t, strings.Join(append(line, orDash(strings.Join(pairs, ", "))), "\t"))
		}
	})
	if err != nil {
		return err
	}
	if more := x.res.Total - len(x.res.Files); more > 0 {
		fmt.Fprintf(out, "... and %s (--limit)\n", plural(int64(more), "more file"))
	}
	for _, c := range x.res.Conflicts {
		if row := x.rows[c.Path]; row == nil {
			fmt.Fprintf(out, "C %s %s/%s: %s\n", quote(c.Path), quote(c.A), quote(c.B), c.Kind)
		}
	}
	return out.Flush()
}

// cellText is what became of a file in an attempt.
func (x *comparison) cellText(row *compareRow, cell *compareCell) string {
	if cell == nil {
		return "-"
	}
	if cell.SameAs != "" {
		first := slices.IndexFunc(row.Attempts, func(c *compareCell) bool { return c != nil })
		if x.names[first] == cell.SameAs {
			return "same"
		}
		return "as " + quote(cell.SameAs)
	}
	switch {
	case cell.Kind == "D":
		return "D"
	case cell.Binary || cell.Additions+cell.Deletions == 0:
		return cell.Kind
	case cell.Kind == "A":
		return fmt.Sprintf("A +%d", cell.Additions)
	}
	return fmt.Sprintf("+%d -%d", cell.Additions, cell.Deletions)
}
