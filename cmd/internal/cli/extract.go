package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// extractHelp is what the help of both verbs with --to says of it.
const extractHelp = `With --to, the tree of the snapshot is written into directory DIR, from the store and without a mount.
Everything is written that a mount shows: contents, holes, modes, owners, times, links, devices,
attributes and ACLs, but for inode numbers and times of change. The daemon writes with its rights. What it
may not do, or the file system of DIR does not know, is counted and skipped, and the exit code is 1;
--verbose lists it.

DIR is created if it is missing, or must be empty. Until everything is on the disk it is closed to other
users, and has a file .snapfs-restore. If the command was interrupted or the disk was full, the same
command continues: what is complete is kept. If DIR has the whole tree already, by size and time of its
files, it is left as it is. Setuid programs and devices of a foreign tree become real ones in DIR.`

// extraction are the flags of a verb with --to.
type extraction struct {
	to     string
	noSync bool
}

// flags adds the flags to a verb.
func (x *extraction) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&x.to, "to", "", "write the tree into directory `DIR`")
	f.BoolVar(&x.noSync, "no-sync", false, "with --to: do not wait until the tree is on the disk")
	if err := cmd.MarkFlagDirname("to"); err != nil {
		panic(err) // the flag is there
	}
}

// check refuses flags that are for another use of the verb. given reports whether --to is.
func (x *extraction) check(cmd *cobra.Command, args []string, mine ...string) (given bool, err error) {
	given = cmd.Flags().Changed("to")
	switch {
	case !given && x.noSync:
		return false, usagef("--no-sync is for --to")
	case given && len(args) > 1:
		return true, usagef("--to and %q exclude each other", args[1])
	case given:
		for _, name := range mine {
			if cmd.Flags().Changed(name) {
				return true, usagef("--to and --%s exclude each other", name)
			}
		}
	}
	return given, nil
}

// run writes the tree.
func (x *extraction) run(a *app, cmd *cobra.Command, snapshot string, part api.Part) error {
	dir, err := absolute("DIR", x.to)
	if err != nil {
		return err
	}
	return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
		return x.write(cmd.Context(), a, c, api.ExtractRequest{Part: part, Snapshot: snapshot, Path: dir, NoSync: x.noSync})
	})
}

// write makes the call.
func (x *extraction) write(ctx context.Context, a *app, c api.API, r api.ExtractRequest) error {
	a.remains = "what was written stays in " + quote(r.Path) + ", and the same command continues"
	meter := a.newMeter()
	r.Access, r.Progress = a.access(), meter.report()
	got, err := c.Extract(ctx, r)
	meter.done()
	if err != nil {
		return err
	}
	if err := a.result(got, func(w io.Writer) error { return printExtract(w, got) }); err != nil {
		return err
	}
	return a.skips(got)
}

// printExtract says in a line what was written.
func printExtract(w io.Writer, r api.ExtractResult) error {
	kept := ""
	if r.Kept > 0 {
		kept = fmt.Sprintf(", %d of them there before", r.Kept)
	}
	took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond)
	_, err := fmt.Fprintf(w, "%s  %d files%s, %d directories, %s in %s\n",
		quote(r.Path), r.Files, kept, r.Directories, size(r.Bytes), took)
	return err
}

// skips says what is missing. The error has no class: the tree is there, without it.
func (a *app) skips(r api.ExtractResult) error {
	if r.Skipped == 0 {
		return nil
	}
	list := r.Skips
	if !a.verbose {
		list = list[:min(len(list), 3)]
	}
	for _, s := range list {
		a.note("%s: %s: %s", quote(s.Path), s.What, s.Error)
	}
	if n := r.Skipped - int64(len(list)); n > 0 {
		a.note("and %d more", n)
	}
	hint := ""
	if !a.verbose && r.Skipped > int64(len(list)) {
		hint = "; --verbose lists them"
	}
	return errors.New(plural(r.Skipped, "thing") + " could not be restored" + hint)
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
