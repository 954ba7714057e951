package cli

import (
	"strconv"
	"strings"
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
		Long: `Freezes the present state of workspace NAME and prints the id of the snapshot. Programs in the workspace go on;
every write, close and msync that was done before is in it. The snapshot can be restored and branched at once; its data
move to the chunk store in the background ('snapfs snapshots' shows sealed, then stored).

When the command returns the snapshot survives a power loss, unless --no-sync was given. A workspace in which nothing
changed gives a snapshot that costs no layer.`,
		Example: "  snapfs snapshot app --name before-upgrade\n  snapfs snapshot app --ttl 72h --wait stored --json",
		Args:    exact("NAME"),
		Annotations: map[string]string{
			"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		},
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
				return usagef("--wait %q: stored is all there is to wait for", wait)
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				meter := a.newMeter()
				r.Progress = meter.report()
				snap, err := c.Snapshot(cmd.Context(), r)
				meter.done()
				if err != nil {
					return err
				}
				if snap.Unchanged {
					a.note("nothing changed since the parent; no layer was added")
				}
				return a.result(snap, line(snap.ID))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Name, "name", "", "name by which the snapshot can be found")
	f.StringVar(&r.Description, "description", "", "free text")
	f.StringVar(&ttl, "ttl", "", "expire after `DURATION`, as 90m, 72h or 7d")
	f.StringVar(&expires, "expires-at", "", "expire at `TIME`, RFC 3339")
	f.StringVar(&wait, "wait", "", "return when the snapshot is `STATE`: stored")
	f.BoolVar(&r.Consistent, "consistent", false, "freeze the processes of the workspace's control group for the moment")
	f.StringVar(&r.Cgroup, "cgroup", "", "with --consistent: the control group in `DIR`")
	f.BoolVar(&r.NoSync, "no-sync", false, "return before it is durable")
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

// parseDuration is time.ParseDuration, and whole days as in 7d.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(s)
}
