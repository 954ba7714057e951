package cli

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) mcpCommand() *cobra.Command {
	var workspace, from, state string
	var readOnly bool
	cmd := &cobra.Command{
		Use:   "mcp [--workspace NAME] [--from SRC] [--state NAME] [--read-only]",
		Short: "serve a workspace to an agent, over the Model Context Protocol",
		Long: `Serves the tools of a workspace to an agent over standard input and output, as a Model Context
Protocol server. Agents start it by themselves: put it into their settings as the command of a server,
see docs/SERVICE.md, "Agents over MCP". It ends with its standard input. Standard output has the
protocol only.

The tools take, list and delete snapshots, restore and branch them, show changes, and read, search and
change files. A restore or branch makes a new workspace; the tools work on that from then on, also after
the agent was started again.

The agent begins in the workspace that --workspace names, which is made of SRC if it is missing; SRC is
as in 'snapfs create'. Without --workspace, it begins in the workspace that the present directory is
in. A workspace that is not mounted is mounted in the directory mnt of the home when its files are used.

Where the agent is, is recorded for the session and the workspace in which it began. Agents that begin
in one workspace and are to be told apart have a --state each. If the workspace is gone when the agent
comes back, it is restored from its newest snapshot, or else the agent is in a fresh one, and is told
so.

With --read-only there are only the tools that change nothing.`,
		Example: `  snapfs mcp --workspace app
  snapfs mcp --workspace task-17 --from app:built
  claude mcp add snapfs -- snapfs mcp --workspace app`,
		Args:        cobra.NoArgs,
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from != "" && workspace == "" {
				return usagef("--from is what a workspace is made of that --workspace names")
			}
			if strings.HasPrefix(state, "workspace") {
				return usagef("--state %s: names that begin with \"workspace\" are taken", quote(state))
			}
			if state != "" {
				if err := api.ValidPositionName(state); err != nil {
					return err
				}
			}
			src, err := source(cmd, from)
			if err != nil {
				return err
			}
			if a.Engine == nil {
				return execEngine()
			}
			need := existingHome
			if workspace != "" {
				need = anyHome
			}
			ctx := cmd.Context()
			return a.withClient(ctx, need, func(c *client.Client) error {
				if err := a.onlyOne(ctx, c, from, src); err != nil {
					return err
				}
				begin, err := a.beginIn(ctx, c, workspace, state)
				if err != nil {
					return err
				}
				return a.serveMCP(ctx, need, MCPOptions{Client: c, Workspace: begin, Source: src, State: state, ReadOnly: readOnly})
			})
		},
	}
	cmd.Flags().StringVar(&workspace, "workspace", "", "begin in workspace `NAME` (default: the one of this directory)")
	cmd.Flags().StringVar(&from, "from", "", "`SRC` of a workspace that is made, as in 'snapfs create' (default: empty)")
	cmd.Flags().StringVar(&state, "state", "", "record where the agent is as `NAME`, apart from others that begin in the workspace")
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "only tools that change nothing")
	return cmd
}

// beginIn gives the workspace in which an agent begins: by its name or a path, else that of the present directory. It may be
// "" for an agent of a state that is recorded.
func (a *app) beginIn(ctx context.Context, c *client.Client, name, state string) (string, error) {
	if name != "" && !api.IsPath(name) {
		return name, api.ValidWorkspaceName(name)
	}
	path := name
	if path == "" {
		path = "."
	}
	w, err := c.Locate(ctx, api.LocateRequest{Access: a.access(), Path: path})
	if err == nil || name != "" || !errors.Is(err, api.ErrNotFound) {
		return w.ID, err
	}
	if state != "" {
		if _, err := c.Position(ctx, api.PositionRequest{Access: a.access(), Name: state}); err == nil {
			return "", nil
		}
	}
	return "", failure(api.ErrNotFound, "this directory is in no workspace: name one with --workspace NAME, which is made if "+
		"it is missing, or start the agent in a mounted workspace")
}

// serveMCP serves an agent over the standard streams.
func (a *app) serveMCP(ctx context.Context, n need, o MCPOptions) error {
	if err := os.Chdir("/"); err != nil { // this process keeps no mount in use
		return err
	}
	in, okIn := a.in.(*os.File)
	out, okOut := a.out.(*os.File)
	if !okIn || !okOut {
		return usagef("standard input and output are no files")
	}
	o.In, o.Out, o.Access, o.Version = in, out, a.access(), a.Version
	if a.verbose {
		o.Log = a.err
	}
	o.Reconnect = func(ctx context.Context) error {
		again, err := a.connect(ctx, n)
		if err != nil {
			return err
		}
		return again.Close()
	}
	return a.Engine.MCP(ctx, o)
}
