package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "show all about a workspace or a snapshot",
		Long: `Shows all about a workspace or a snapshot. ID is the name of a workspace, or a snapshot: its id, a
unique prefix of the id, its name or its ref.`,
		Example:     "  snapfs show app\n  snapfs show before-upgrade --json",
		Args:        exact("ID"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				o, err := c.Show(cmd.Context(), api.RefRequest{Access: a.access(), Ref: args[0]})
				if err != nil {
					return err
				}
				return a.result(o, func(w io.Writer) error {
					if o.Workspace != nil {
						return showWorkspace(w, *o.Workspace)
					}
					if o.Snapshot != nil {
						return showSnapshot(w, *o.Snapshot)
					}
					return fmt.Errorf("%s: the daemon sent neither a workspace nor a snapshot", quote(args[0]))
				})
			})
		},
	}
}

func showWorkspace(w io.Writer, ws api.Workspace) error {
	return fields(w,
		"workspace", ws.ID,
		"session", ws.Session,
		"state", string(ws.State),
		"view", yes(ws.View),
		"paused", yes(ws.Paused),
		"cgroup", quoteIf(strings.ReplaceAll(ws.Cgroup, "\n", " ")),
		"mountpoint", quoteIf(ws.Mountpoint),
		"was mounted at", quoteIf(ws.LastMountpoint),
		"read-only", yes(ws.ReadOnly),
		"nosuid", yes(ws.NoSUID),
		"nodev", yes(ws.NoDev),
		"engine", ws.Engine,
		"transport", ws.Transport,
		"created", moment(ws.CreatedAt),
		"source", quoteIf(ws.Source),
		"foreign", yes(ws.Foreign),
		"origin", ws.Origin,
		"head", ws.Head,
		"quota", quotaText(ws.Quota),
		"layers", strconv.Itoa(ws.Layers),
		"import", importText(ws.Import),
		"changed in source", changedText(ws.Import),
		"missing in source", missingText(ws.Import),
		"problem", cannotStore(ws.Problem),
		"requests", requestCounts(ws.Requests),
	)
}

// cannotStore says why a layer of a workspace is not stored.
func cannotStore(problem string) string {
	if problem == "" {
		return ""
	}
	return "a layer cannot be stored: " + problem
}

// requestCounts formats how many requests of each kind the kernel has sent, the most frequent first.
func requestCounts(n map[string]uint64) string {
	kinds := slices.SortedFunc(maps.Keys(n),
		func(a, b string) int { return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a, b)) })
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%s %d", strings.ToLower(k), n[k])
	}
	return strings.Join(kinds, ", ")
}

func showSnapshot(w io.Writer, s api.Snapshot) error {
	expires := ""
	if s.ExpiresAt != nil {
		expires = moment(*s.ExpiresAt)
	}
	err := fields(w,
		"snapshot", s.ID,
		"name", quoteIf(s.Name),
		"description", quoteIf(s.Description),
		"workspace", s.Workspace,
		"session", s.Session,
		"state", string(s.State),
		"parent", s.Parent,
		"created", moment(s.CreatedAt),
		"foreign", yes(s.Foreign),
		"expires", expires,
	)
	if err != nil {
		return err
	}
	rows := make([][]string, 0, len(s.Layers))
	for _, l := range s.Layers {
		bytes := "-"
		if l.State == api.Stored {
			bytes = size(l.Size)
		}
		state := string(l.State)
		if l.Problem != "" {
			state += " (cannot be stored: " + l.Problem + ")"
		}
		rows = append(rows, []string{l.ID, state, bytes, orDash(l.Digest)})
	}
	return table(w, "LAYER STATE SIZE DIGEST", rows)
}

// yes is "yes" for true and empty for false.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}
