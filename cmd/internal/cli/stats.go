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
		Short: "show the space that a home, session, workspace or snapshot uses",
		Long: `Shows the space that is used by the workspace or snapshot ID, with --of-session by everything that
the session owns, or by the whole home. With --json, all sizes are in bytes.

  logical       size of the images, uncompressed
  stored        size of their data in the chunk store
  unique        stored data that nothing else needs; deleting this would free it
  shared        stored data that something else needs, too
  of one        for the home: stored data that a single snapshot or workspace needs
                and that goes with it
  of several    for the home: stored data that several need, such as a workspace and its snapshots
  reclaimable   for the home: garbage that 'snapfs gc' frees; else: what deleting this would
                make garbage
  upper         data in workspaces that is in no snapshot yet
  sealed        data in snapshots that is not in the chunk store yet
  packs, index  size of the chunk store's files
  index cache   memory of the daemon that the caches of the index may take
  pinned        reclaimable data that gc cannot free as long as somebody reads it, and who does`,
		Example: `  snapfs stats
  snapfs stats before-upgrade --json
  snapfs stats --of-session --session agent-7`,
		Args:        between(0, "ID"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
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
	cmd.Flags().BoolVar(&ofSession, "of-session", false, "show the space of everything that the session owns")
	return cmd
}

func printStats(w io.Writer, s api.Stats) error {
	own, others := "unique", "shared"
	if s.Ref == "" && s.Session == "" {
		own, others = "of one", "of several" // to the home as a whole, all is its own
	}
	pairs := []string{
		"logical", size(s.Logical),
		"stored", size(s.Stored),
		own, size(s.Unique),
		others, size(s.Shared),
		"reclaimable", size(s.Reclaimable),
		"upper", size(s.Upper),
		"sealed", size(s.Sealed),
	}
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	if s.Documents > 0 {
		pairs = append([]string{"documents", count(s.Documents)}, pairs...)
	}
	if s.Ref != "" {
		return fields(w, append(append([]string{"of", s.Ref, "layers", count(s.Layers)}, pairs...), "quota", quotaText(s.Quota))...)
	}
	head := []string{"workspaces", count(s.Workspaces), "snapshots", count(s.Snapshots), "layers", count(s.Layers)}
	if s.Session != "" {
		return fields(w, append(append([]string{"of session", s.Session}, head...), pairs...)...)
	}
	pairs = append(append(head, pairs...), "packs", size(s.Packs), "index", size(s.Index), "index cache", size(s.IndexCache))
	for _, p := range s.Pinned {
		pairs = append(pairs, "pinned", pinned(p))
	}
	return fields(w, pairs...)
}
