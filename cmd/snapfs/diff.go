package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
)

func (a *app) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A [B]",
		Short: "show what differs between two snapshots or workspaces",
		Long: `Shows what has to change in A to make it B, a line per path in the order of paths. Without B: what a snapshot
changed against its parent, or a workspace against its newest snapshot.

  A path            added
  M path            contents or metadata modified
  D path            deleted
  T path            type changed
  R old -> path     renamed

Paths with control characters, quotes or bytes that are no UTF-8 are shown as Go string literals; with --json such bytes
are in raw_path, base64.`,
		Example:     "  snapfs diff app\n  snapfs diff before-upgrade app --json",
		Args:        between(1, "A", "B"),
		Annotations: map[string]string{"exits": exitHelp(exitNotFound, exitConflict, exitRefused, exitCorrupt, exitUnavailable)},
		RunE: func(cmd *cobra.Command, args []string) error {
			r := sandbox.DiffRequest{Access: a.access(), A: args[0]}
			if len(args) == 2 {
				r.B = args[1]
			}
			return a.withClient(cmd.Context(), existingHome, func(c *daemon.Client) error {
				return a.printDiff(cmd.Context(), c, r)
			})
		},
	}
}

// printDiff streams a diff, for it can have as many lines as a tree has files.
func (a *app) printDiff(ctx context.Context, c sandbox.API, r sandbox.DiffRequest) error {
	w := bufio.NewWriterSize(a.out, 1<<16)
	if !a.json {
		if err := c.Diff(ctx, r, func(ch sandbox.Change) error { return printChange(w, ch) }); err != nil {
			return err
		}
		return w.Flush()
	}
	// Nothing is written before the first change or the end, so that a diff that is refused leaves standard output empty.
	open, between := `{"changes":[`, ""
	err := c.Diff(ctx, r, func(ch sandbox.Change) error {
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
	fmt.Fprintf(w, "%s]}\n", open)
	return w.Flush()
}

// printChange writes one line.
func printChange(w io.Writer, ch sandbox.Change) error {
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
