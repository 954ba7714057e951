package cli

import (
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) snapshotCommand() *cobra.Command {
	var r api.SnapshotRequest
	var ttl, expires, wait string
	cmd := &cobra.Command{
		Use:   "snapshot NAME",
		Short: "freeze a workspace, mounted or not",
		Long: `Freezes the current state of workspace NAME and prints the id of the snapshot. Programs in the
workspace continue. Every write, close and msync that completed before is in the snapshot.

The snapshot can be restored and branched at once. Its data move to the chunk store in the
background: 'snapfs snapshots' shows the state sealed, then stored.

When the command returns, the snapshot survives a power failure, unless --no-sync is given. If
nothing changed since the last snapshot, the new one adds no layer.

With --consistent, the containers that have NAME mounted are frozen for the moment, or the control
group that --cgroup names or 'snapfs pause' has, and what they stored through shared mappings is in
the snapshot. Without either it is a conflict.`,
		Example: `  snapfs snapshot app --name before-upgrade
  snapfs snapshot app --ttl 72h --wait stored --json`,
		Args:        exact("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Access, r.Workspace = a.access(), args[0]
			if cmd.Flags().Changed("name") && r.Name == "" {
				return usagef("empty --name")
			}
			if r.Cgroup != "" {
				if !r.Consistent {
					return usagef("--cgroup is for --consistent")
				}
				var err error
				if r.Cgroup, err = absolute("cgroup", r.Cgroup); err != nil {
					return err
				}
			}
			if err := parseExpiry(&r, ttl, expires); err != nil {
				return err
			}
			switch wait {
			case "":
			case "stored":
				r.WaitStored = true
			default:
				return usagef("--wait %q: the only state to wait for is stored", wait)
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				meter := a.newMeter()
				r.Progress = meter.report()
				snap, err := c.Snapshot(cmd.Context(), r)
				meter.done()
				if err != nil {
					return err
				}
				switch {
				case snap.Unchanged && snap.Parent == "":
					a.note("the snapshot is workspace %s as it was made", snap.Workspace)
				case snap.Unchanged:
					a.note("the snapshot is the same as %s: nothing changed since", snap.Parent)
				}
				return a.result(snap, line(snap.ID))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Name, "name", "", "`NAME` of the snapshot")
	f.StringVar(&r.Description, "description", "", "`TEXT` that is shown with the snapshot")
	f.StringVar(&ttl, "ttl", "", "delete the snapshot after `DURATION`, such as 90m, 72h or 7d")
	f.StringVar(&expires, "expires-at", "", "delete the snapshot at `TIME` (RFC 3339)")
	f.StringVar(&wait, "wait", "", "return when the snapshot has reached `STATE`: stored")
	f.BoolVar(&r.Consistent, "consistent", false,
		"freeze the workspace's containers, or its control group, while the snapshot is taken")
	f.StringVar(&r.Cgroup, "cgroup", "", "with --consistent: the control group at `DIR`")
	f.BoolVar(&r.NoSync, "no-sync", false, "return before the snapshot is durable")
	return cmd
}

// parseExpiry reads --ttl and --expires-at.
func parseExpiry(r *api.SnapshotRequest, ttl, expires string) error {
	if ttl != "" && expires != "" {
		return usagef("--ttl and --expires-at exclude each other")
	}
	if ttl != "" {
		d, err := parseDuration(ttl)
		if err != nil || d <= 0 {
			return usagef("--ttl %q: a positive duration such as 90m, 72h or 7d", ttl)
		}
		r.TTL = d
	}
	if expires != "" {
		t, err := time.Parse(time.RFC3339, expires)
		if err != nil {
			return usagef("--expires-at %q: a time such as 2031-05-01T12:00:00Z", expires)
		}
		if !t.After(time.Now()) {
			return usagef("--expires-at %q is past", expires)
		}
		r.ExpiresAt = &t
	}
	return nil
}
