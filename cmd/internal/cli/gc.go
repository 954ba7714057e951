package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// collected says in words what a collection did. Bytes that were dropped but not freed remain in the store's files.
func collected(got api.GCResult) string {
	text := fmt.Sprintf("freed %s", size(got.Freed))
	if kept := got.Dropped - got.Freed; kept > 0 {
		text += fmt.Sprintf(", and %s for what is stored next,", size(kept))
	}
	return fmt.Sprintf("%s in %d chunks, deleted %d expired snapshots", text, got.Chunks, got.Expired)
}

// leftOver says in words what a collection left between live data.
func leftOver(bytes int64, full bool) string {
	text := size(bytes) + " of garbage remains between live data"
	if !full {
		text += "; gc --full returns most of it"
	}
	return text
}

// pinned says in words who keeps space that nothing names any more.
func pinned(p api.Pinned) string {
	where := "workspace " + p.Workspace
	if p.Mountpoint != "" {
		where += " at " + p.Mountpoint
	}
	switch p.Why {
	case api.PinDeleted:
		files := "deleted files that programs have open"
		switch {
		case p.Files == 1:
			return fmt.Sprintf("%s are kept by a deleted file that a program has open in %s, until it is closed",
				size(p.Bytes), where)
		case p.Files > 1:
			files = fmt.Sprintf("%d %s", p.Files, files)
		}
		return fmt.Sprintf("%s are kept by %s in %s, until they are closed", size(p.Bytes), files, where)
	case api.PinMount:
		text := fmt.Sprintf("%s are kept by the mount of %s, until the next gc or unmount", size(p.Bytes), where)
		if p.Detail != "" {
			text += ": " + p.Detail
		}
		return text
	}
	return size(p.Bytes) + " are kept by exports, comparisons or other calls, until they end"
}

func (a *app) gcCommand() *cobra.Command {
	r := api.GCRequest{}
	cmd := &cobra.Command{
		Use:   "gc [--full] [--optimize] [--max-size SIZE]",
		Short: "return the space of deleted data to the host",
		Long: `Deletes expired snapshots, merges layers that only the layer above them needs, and returns the space
of chunks that no layer needs. Workspaces stay mounted and usable.

Most garbage is returned where it lies. The rest lies between live data, which must be moved: that
is done when it is worth the writes. Until then 'snapfs stats' shows that garbage as reclaimable, and
gc reports how much it is. With --full, nearly all of it is returned, whatever must be moved.

What somebody still reads stays, too: deleted files that programs have open, and exports and
comparisons under way. gc and 'snapfs stats' tell how much that is, and who keeps it.

With --max-size, the oldest turns and other snapshots without a name are deleted, of all sessions, until
the home takes no more than SIZE on its disk (20G are 20,000,000,000 bytes, 20GiB 20 x 1024^3). They are
listed. Snapshots with a name stay, and those at which workspaces are. If that is not enough, the exit
code is 4. 'serve --max-size', or max-size in the daemon's settings, does so by itself.

With --optimize, cold data are repacked as well, which takes longer.`,
		Example:     "  snapfs gc\n  snapfs gc --full\n  snapfs gc --max-size 20G\n  snapfs gc --optimize --json",
		Args:        exact(),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				meter := a.newMeter()
				r.Progress = meter.report()
				a.remains = "space that was freed before stays free"
				got, err := c.GC(cmd.Context(), r)
				meter.done()
				if err != nil {
					return err
				}
				err = a.result(got, func(w io.Writer) error {
					if len(got.Deleted) > 0 {
						if err := snapshotTable(w, api.SnapshotPage{Snapshots: got.Deleted}); err != nil {
							return err
						}
						a.note("%d deleted, because the home was larger than %s", len(got.Deleted), size(r.MaxSize))
					}
					_, err := fmt.Fprintln(w, collected(got))
					if err == nil && got.Left > 0 {
						a.note("%s", leftOver(got.Left, r.Full))
					}
					for _, p := range got.Pinned {
						a.note("%s", pinned(p))
					}
					return err
				})
				if err == nil && got.Over {
					err = failure(api.ErrConflict, "conflict: the home takes %s, more than %s: what is left has a name, is "+
						"where a workspace is, or is in a workspace: delete or destroy some", size(got.Size), size(r.MaxSize))
				}
				return err
			})
		},
	}
	cmd.Flags().Var(bytesize{&r.MaxSize}, "max-size", "delete the oldest turns until the home takes `SIZE`, such as 20G")
	cmd.Flags().BoolVar(&r.Full, "full", false, "return nearly all garbage, even if much must be moved")
	cmd.Flags().BoolVar(&r.Optimize, "optimize", false, "repack cold data")
	return cmd
}
