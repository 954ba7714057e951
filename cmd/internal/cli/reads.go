package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) readsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reads NAME",
		Short: "list what programs have read in a workspace",
		Long: `Lists what programs have read in workspace NAME since it was made, as far as it was mounted with
--track-reads. 'snapfs apply' warns, or with --serializable refuses, if the target has changed some of
it. Each line has the kinds of reads, separated by commas, and the path in the tree that NAME was made
with, whatever programs have renamed since:

  content     of a file, or where a symbolic link leads
  listing     the names in a directory
  missing     a name that was asked for, and that there was not
  attributes  a name that there was, or what stat tells

What programs made in NAME, and files whose contents they have replaced, they do not read from that
tree. A directory with a slash at its end stands for something in it: of more than 262144 names, it is
not kept which. A file is read if any of it is. That a listing was read includes that the kernel has
been told what stat shows of each name.

--track-reads begins with the first mount that has it; all later mounts of NAME go on with it. A
rollback or undo forgets no read. A workspace that is branched, restored or forked from NAME begins
anew, with a --track-reads of its own; 'snapfs apply' also looks at what it was made of.

A message says so if reads may be missing: NAME was mounted before without --track-reads, or the
daemon was killed. Until a new workspace is made, 'snapfs apply' then takes it that anything may have
been read.`,
		Example:     "  snapfs reads app\n  snapfs reads . --json",
		Args:        exact("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := api.RefRequest{Access: a.access(), Ref: args[0]}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				w := bufio.NewWriterSize(a.out, 1<<16)
				got, err := a.printReads(cmd.Context(), w, c, r)
				if err = errors.Join(err, w.Flush()); err != nil {
					return err
				}
				for _, gap := range got.Gaps {
					a.note("reads may be missing: %s", plain(gap))
				}
				return nil
			})
		},
	}
}

// printReads prints reads as they come. Standard output stays empty if the request is refused.
func (a *app) printReads(ctx context.Context, w io.Writer, c api.API, r api.RefRequest) (api.ReadsResult, error) {
	open, between := `{"reads":[`, ""
	got, err := c.Reads(ctx, r, func(x api.Read) error {
		if !a.json {
			_, err := fmt.Fprintf(w, "%s %s\n", strings.Join(x.Kinds, ","), readPath(x.Path, x.Whole))
			return err
		}
		text, err := json.Marshal(x)
		if err == nil {
			_, err = fmt.Fprintf(w, "%s%s\n%s", open, between, text)
		}
		open, between = "", ","
		return err
	})
	if err != nil || !a.json {
		return got, err
	}
	rest, err := json.Marshal(got)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s],%s\n", open, rest[1:])
	}
	return got, err
}

// readPath is how a path is printed; the root is a dot.
func readPath(path string, whole bool) string {
	if path == "" {
		path = "."
	}
	if whole {
		path += "/"
	}
	return quote(path)
}

// maxWarned is how many stale reads are told beside the changes.
const maxWarned = 20

// noteStale warns of reads that are not true any more.
func (a *app) noteStale(target string, got api.ApplyResult) {
	for i, x := range got.StaleReads {
		if i == maxWarned {
			a.note("warning: %d more; --json lists them", len(got.StaleReads)-i+got.MoreStaleReads)
			break
		}
		a.note("warning: %s changed what programs in %s have read: %s", plain(target), plain(x.Workspace), staleLine(x))
	}
	for _, gap := range got.ReadGaps {
		a.note("warning: programs may have read what has changed since: %s", plain(gap))
	}
}

// staleLine tells of a stale read.
func staleLine(x api.StaleRead) string {
	how := map[string]string{"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "T": "of another type"}[x.Change]
	text := fmt.Sprintf("%s (%s; %s", readPath(rawPath(x.Path, x.RawPath), false), strings.Join(x.Kinds, ", "), how)
	if x.Coarse {
		text += "; only its directory is known"
	}
	return text + ")"
}

// unserializable is the error of an apply that reads stand against.
func unserializable(target string, got api.ApplyResult) error {
	if n := len(got.StaleReads) + got.MoreStaleReads; n > 0 {
		return failure(api.ErrConflict, "nothing was changed: %s has changed %s that programs have read: do the work again on "+
			"a new branch, or leave --serializable out", plain(target), plural(int64(n), "thing"))
	}
	return failure(api.ErrConflict, "nothing was changed: %s has changed since, and it is not known what programs have read: "+
		"%s. Leave --serializable out, or do the work on a new branch that is mounted with --track-reads",
		plain(target), plain(got.ReadGaps[0]))
}
