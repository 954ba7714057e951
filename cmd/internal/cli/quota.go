package cli

import (
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) quotaCommand() *cobra.Command {
	var q api.Quota
	cmd := &cobra.Command{
		Use:   "quota NAME [--size SIZE] [--inodes N]",
		Short: "show or change what a workspace may take of the disk",
		Long: `Shows the limits of workspace NAME and what it takes, or changes the limits. A limit that is not given
stays; 0 takes it away. The workspace may be mounted: a new limit holds at once.

` + quotaHelp,
		Example:     "  snapfs quota app\n  snapfs quota app --size 10G --inodes 1M\n  snapfs quota app --size 0",
		Args:        exact("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := api.QuotaRequest{Access: a.access(), Workspace: args[0]}
			if cmd.Flags().Changed("size") {
				r.Size = &q.Size
			}
			if cmd.Flags().Changed("inodes") {
				r.Inodes = &q.Inodes
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				ws, err := a.quota(cmd, c, r)
				if err != nil {
					return err
				}
				return a.result(ws, func(w io.Writer) error {
					text := quotaText(ws.Quota)
					if text == "" {
						text = "unlimited"
					}
					return fields(w, "workspace", ws.ID, "quota", text)
				})
			})
		},
	}
	quotaFlags(cmd, &q)
	return cmd
}

// quota changes limits, or shows them if there is nothing to change.
func (a *app) quota(cmd *cobra.Command, c *client.Client, r api.QuotaRequest) (api.Workspace, error) {
	if r.Size != nil || r.Inodes != nil {
		return c.SetQuota(cmd.Context(), r)
	}
	o, err := c.Show(cmd.Context(), api.RefRequest{Access: r.Access, Ref: r.Workspace})
	if err != nil {
		return api.Workspace{}, err
	}
	if o.Workspace == nil {
		return api.Workspace{}, failure(api.ErrInvalid, "%s is a snapshot: only workspaces have limits", quote(r.Workspace))
	}
	return *o.Workspace, nil
}

const quotaHelp = `The limits are for what would be freed if the workspace and its snapshots were gone: the data that it
has written, and what its snapshots keep that nothing else needs. At a limit programs get ENOSPC (No
space left on device), and df in the workspace shows the limits. 10G are 10 x 1000³ bytes, 10GiB
10 x 1024³. Every file, directory or link that is no hard link is an inode.`

// quotaFlags adds the flags of limits.
func quotaFlags(cmd *cobra.Command, q *api.Quota) {
	cmd.Flags().Var(bytesize{&q.Size}, "size", "let the workspace take `SIZE` of the disk at most, such as 10G (default: unlimited)")
	cmd.Flags().Var(quantity{&q.Inodes}, "inodes", "let the workspace have `N` inodes at most, such as 1M (default: unlimited)")
}

// quantity is a flag that takes a number with a unit: M are 1000² of them.
type quantity struct{ to *int64 }

var errQuantity = errors.New("want a number such as 5000, 100k or 1M")

// Set implements pflag.Value, as the next two do.
func (n quantity) Set(s string) error {
	x, err := humanize.ParseBytes(s)
	if err != nil || x > math.MaxInt64 {
		return errQuantity
	}
	*n.to = int64(x)
	return nil
}

func (n quantity) String() string {
	if n.to == nil {
		return "0"
	}
	return strconv.FormatInt(*n.to, 10)
}

func (quantity) Type() string { return "number" }

// quotaText says what a workspace takes of its limits; "" if it has none.
func quotaText(q *api.QuotaState) string {
	if q == nil {
		return ""
	}
	text := size(q.Used)
	if q.Size > 0 {
		text += " of " + size(q.Size)
	}
	text += ", " + strconv.FormatInt(q.UsedInodes, 10)
	if q.Inodes > 0 {
		text += " of " + strconv.FormatInt(q.Inodes, 10)
	}
	text += " inodes"
	if q.Counting {
		text += " (being counted)"
	}
	return text
}
