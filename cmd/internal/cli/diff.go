package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) diffCommand() *cobra.Command {
	var r api.DiffRequest
	cmd := &cobra.Command{
		Use:   "diff A [B] [--stat | --patch] [-- PATH...]",
		Short: "show what differs between two snapshots or workspaces",
		Long: `Shows what must change in A to make it B, one line per path, sorted by path. A and B are snapshots
or workspaces, mounted or not. Without B, shows what has changed in a workspace since its newest
snapshot, or since snapshot A. With --parent, shows what snapshot A changed since its parent.

  A path            added
  M path            contents or metadata modified
  D path            deleted
  T path            type changed
  R old -> path     renamed; a renamed directory is one line, and each change inside it another

--stat shows how many lines each text file gained and lost, as 'git diff --stat' does, and the sizes
of binary files.

--patch prints a patch that makes the files of A those of B, for 'git apply', 'git apply -3' or 'patch
-p1'. It is what git makes with --full-index and --binary. A file with a NUL byte, or of more than 16
MiB or 500,000 lines, is binary, and may have 64 MiB; with --binary=false, a patch with a binary file
is refused. So is a patch that makes a file where A has something that is not in the patch. A patch is
printed when it is whole; one of a few MiB waits in TMPDIR. Before a patch of which patch(1) would apply only a part, because it has binary files or
a directory where a file was, there are lines by which patch(1) refuses it as a whole.

As always in git, a patch has no directories, owners, times, attributes or devices. Of permissions it
has only whether a file is executable. Standard error tells what is left out. So is what is in
repositories' .git, unless --git-dir is given: git refuses such a patch, and patch(1) may damage a
repository with it.

Paths with control characters, quotes or bytes that are not UTF-8 are printed as Go string literals,
and in patches as git prints them. With --json, paths that are not UTF-8 are also in raw_path, in
base64. Patches are in base64.

` + partHelp + `
The .gitignore files are those of B.`,
		Example: "  snapfs diff app\n  snapfs diff before-upgrade app --stat\n" +
			"  snapfs diff base app --patch | git -C ~/src/app apply\n" +
			"  snapfs diff base app --patch --gitignore --exclude '*.log'\n" +
			"  snapfs diff base app --json --stat | jq .additions",
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			args, r.Paths = partArgs(cmd, args)
			r.Access, r.A = a.access(), args[0]
			if len(args) == 2 {
				r.B = args[1]
			}
			if !cmd.Flags().Changed("binary") {
				r.Binary = r.Patch
			} else if r.Binary {
				r.Patch = true
			} else if !r.Patch {
				return usagef("--binary=false is for --patch")
			}
			if r.GitDir && !r.Patch {
				return usagef("--git-dir is for --patch")
			}
			if r.Stat && r.Patch && !a.json {
				return usagef("--stat and --patch exclude each other, except with --json")
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				if len(args) == 1 && !r.Parent {
					a.noteSince(cmd.Context(), c, r.A)
				}
				return a.printDiff(cmd.Context(), c, r)
			})
		},
	}
	partFlags(cmd, &r.Part, between(1, "A", "B"))
	f := cmd.Flags()
	f.BoolVar(&r.Parent, "parent", false, "compare snapshot A with its parent")
	f.BoolVar(&r.Stat, "stat", false, "count changed lines and bytes per file, and in total")
	f.BoolVarP(&r.Patch, "patch", "p", false, "print a patch for 'git apply' or 'patch -p1'")
	f.BoolVar(&r.Binary, "binary", false, "put binary files into the patch; --patch does so, and =false refuses them")
	f.BoolVar(&r.GitDir, "git-dir", false, "put the contents of .git into the patch")
	return cmd
}

// noteSince says what a snapshot is compared with, if nothing is named.
func (a *app) noteSince(ctx context.Context, c api.API, ref string) {
	o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: ref})
	if err == nil && o.Snapshot != nil {
		a.note("changes of workspace %s since snapshot %s", o.Snapshot.Workspace, ref)
	}
}

// printDiff streams a diff: it can have as many lines as a tree has files.
func (a *app) printDiff(ctx context.Context, c api.API, r api.DiffRequest) error {
	w := bufio.NewWriterSize(a.out, 1<<16)
	c = metered{c, a}
	var err error
	switch {
	case a.json:
		err = jsonDiff(ctx, w, c, r)
	case r.Stat:
		err = statDiff(ctx, w, c, r)
	case r.Patch:
		err = a.patchDiff(ctx, w, c, r)
	default:
		err = c.Diff(ctx, r, func(ch api.Change) error { return printChange(w, ch) })
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// metered is an API whose Base shows a progress meter, and whose Diff does until the first change.
type metered struct {
	api.API
	a *app
}

// Diff implements api.API.
func (m metered) Diff(ctx context.Context, r api.DiffRequest, fn func(api.Change) error) error {
	meter := m.a.newMeter()
	r.Progress = meter.report()
	done := sync.OnceFunc(meter.done)
	defer done()
	return m.API.Diff(ctx, r, func(ch api.Change) error {
		done()
		return fn(ch)
	})
}

// Base implements api.API.
func (m metered) Base(ctx context.Context, r api.BaseRequest) (api.BaseResult, error) {
	meter := m.a.newMeter()
	r.Progress = meter.report()
	defer meter.done()
	return m.API.Base(ctx, r)
}

// jsonDiff writes one document. Nothing is written before the first change or the end, so that standard output stays
// empty if the request is refused.
func jsonDiff(ctx context.Context, w *bufio.Writer, c api.API, r api.DiffRequest) error {
	open, between := `{"changes":[`, ""
	var sum diffSum
	err := c.Diff(ctx, r, func(ch api.Change) error {
		sum.add(ch)
		text, err := json.Marshal(ch)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s%s\n%s", open, between, text)
		open, between = "", ","
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s]", open)
	if r.Stat || r.Patch {
		text, err := json.Marshal(sum)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, ",\n%s", text[1:len(text)-1])
	}
	fmt.Fprintln(w, "}")
	return nil
}

// patchDiff writes a patch when it is whole, since patch(1) changes files for each part that it reads, and tells of what a
// patch cannot have.
func (a *app) patchDiff(ctx context.Context, w io.Writer, c api.API, r api.DiffRequest) error {
	lost := map[string]int{}
	var patch spool
	defer patch.close()
	err := c.Diff(ctx, r, func(ch api.Change) error {
		for _, what := range ch.Lost {
			lost[what]++
		}
		_, err := patch.Write(slices.Concat(ch.Preamble, ch.Patch))
		return err
	})
	if err == nil {
		_, err = patch.WriteTo(w)
	}
	if err == nil && len(lost) > 0 {
		a.note("%s", lostNote(lost))
	}
	return err
}

// lostNote says what a patch does not have.
func lostNote(lost map[string]int) string {
	words := map[string]string{
		"attributes": "the attributes of %s", "permissions": "the permissions of %s", "owner": "the owners of %s",
		"empty directory": "empty directories (%s)", ".git": "what changed in .git (%s; --git-dir takes it in)",
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(lost)) {
		format, noun := words[what], "file"
		if format == "" {
			format, noun = "%s", what
		}
		parts = append(parts, fmt.Sprintf(format, plural(int64(lost[what]), noun)))
	}
	return "not in the patch: " + strings.Join(parts, ", ")
}

// printChange writes one line.
func printChange(w io.Writer, ch api.Change) error {
	path := quote(rawPath(ch.Path, ch.RawPath))
	var err error
	if ch.Kind == "R" {
		_, err = fmt.Fprintf(w, "R %s -> %s\n", quote(rawPath(ch.OldPath, ch.RawOldPath)), path)
	} else {
		_, err = fmt.Fprintf(w, "%s %s\n", ch.Kind, path)
	}
	return err
}

// rawPath is the path as it is on disk.
func rawPath(text string, raw []byte) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}
