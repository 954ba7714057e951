package cli

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) statsCommand() *cobra.Command {
	var ofSession bool
	cmd := &cobra.Command{
		Use:   "stats [ID | --of-session]",
		Short: "show the space that a home, a session, a workspace or a snapshot takes",
		Long: `Shows space, in bytes with --json: of the workspace or snapshot ID, of all that the session owns (see --session), or
without either, of the whole home.

  logical      bytes of the images as other readers would see them
  stored       bytes that they take in the chunk store
  unique       what only this needs, and what deleting it would free
  shared       what something else needs too
  reclaimable  of the home: what nothing needs any more, until 'snapfs gc'; else what deleting it makes so
  upper        written in workspaces and not yet in a snapshot
  sealed       in snapshots and not yet in the chunk store
  packs, index the files of the chunk store`,
		Example:     "  snapfs stats\n  snapfs stats before-upgrade --json\n  snapfs stats --of-session --session agent-7",
		Args:        between(0, "ID"),
		Annotations: map[string]string{"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable)},
		RunE: func(cmd *cobra.Command, args []string) error {
			if ofSession && len(args) == 1 {
				return usagef("an ID and --of-session exclude each other")
			}
			r := api.StatsRequest{Access: a.access(), OfSession: ofSession}
			if len(args) == 1 {
				r.Ref = args[0]
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				s, err := c.Stats(cmd.Context(), r)
				if err != nil {
					return err
				}
				return a.result(s, func(w io.Writer) error { return printStats(w, s) })
			})
		},
	}
	cmd.Flags().BoolVar(&ofSession, "of-session", false, "of all workspaces and snapshots of the session")
	return cmd
}

func printStats(w io.Writer, s api.Stats) error {
	pairs := []string{
		"logical", size(s.Logical),
		"stored", size(s.Stored),
		"unique", size(s.Unique),
		"shared", size(s.Shared),
		"reclaimable", size(s.Reclaimable),
		"upper", size(s.Upper),
		"sealed", size(s.Sealed),
	}
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	if s.Ref != "" {
		return fields(w, append([]string{"of", s.Ref, "layers", count(s.Layers)}, pairs...)...)
	}
	head := []string{"workspaces", count(s.Workspaces), "snapshots", count(s.Snapshots), "layers", count(s.Layers)}
	if s.Session != "" {
		return fields(w, append(append([]string{"of session", s.Session}, head...), pairs...)...)
	}
	return fields(w, append(append(head, pairs...), "packs", size(s.Packs), "index", size(s.Index))...)
}
