package mcp

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// instructions tell a model how to work.
const instructions = `You work in a copy-on-write workspace: a tree of files that can be frozen and brought back in milliseconds.
The workspace_ tools work on the workspace at hand. Paths are those of the workspace: "/" is its root.

- Before a risky change (a refactoring, a migration, deleting files, running a generator), call workspace_snapshot with a
  name that says what the state is, such as "tests-pass". Snapshots cost next to nothing.
- When a change has gone wrong, call workspace_restore with that name: a new workspace with the state of the snapshot is
  at hand from then on. What you leave stays as it is, in the workspace that you were in; it is not at hand any more, so take
  a snapshot first if you may want it back.
- To try several ways, call workspace_branch for each of them from the same snapshot, and workspace_snapshot where one has
  worked out. Restore the snapshot of the best one in the end.
- workspace_diff shows what has changed since a snapshot, before you go on or report.
- A snapshot is named by its name or id; workspace_list_snapshots lists those of the workspace at hand and of the
  workspaces that it comes from.
- A result that says it was truncated also says how to go on. Narrow searches down rather than raise limits.
- Programs that run outside of these tools see the workspace only where it is mounted for them. After a restore or branch
  they still see the one before.`

// readOnly is added for callers that may change nothing.
const readOnly = "\n\nThis client may only look: there are no tools that change something."

// builder makes a server for callers that have the same scopes.
type builder struct {
	server *mcp.Server
	scopes []api.Scope
	denied map[string]api.Scope // tools that the callers do not have, and what they would need
	// agent gives who makes a call, and the context of the call, which done ends.
	agent func(ctx context.Context, r *mcp.CallToolRequest) (during context.Context, a *agent, done func(), err error)
}

// Options say how a server presents itself.
type Options struct {
	Version string       // of the program
	Home    string       // directory of the home
	Log     *slog.Logger // nil: nothing is logged
}

// build fills in a server.
func (b *builder) build(o Options) *mcp.Server {
	text := instructions
	if len(b.scopes) == 1 && b.scopes[0] == api.ScopeRead {
		text += readOnly
	}
	b.server = mcp.NewServer(&mcp.Implementation{Name: "snapfs", Title: "snapfs workspaces", Version: o.Version},
		&mcp.ServerOptions{
			Instructions: text, Logger: o.Log,
			Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, // the list never changes
		})
	b.denied = map[string]api.Scope{}
	b.server.AddReceivingMiddleware(b.deny)
	b.addSnapshots()
	b.addMoves()
	b.addDiff()
	b.addReads()
	b.addLists()
	b.addSearches()
	b.addWrites()
	return b.server
}

// deny answers calls of tools that the callers do not have, as the audit learns, too.
func (b *builder) deny(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if call, ok := r.(*mcp.CallToolRequest); ok && method == "tools/call" {
			if scope, denied := b.denied[call.Params.Name]; denied {
				during, _, done, err := b.agent(ctx, call)
				if err != nil {
					return nil, err
				}
				defer done()
				refused := fmt.Errorf("%w: this client may not call %s: it lacks the scope %s", api.ErrRefused, call.Params.Name, scope)
				caller.From(during).Refuse(call.Params.Name, refused)
				var answer mcp.CallToolResult
				answer.SetError(refused)
				return &answer, nil
			}
		}
		return next(ctx, method, r)
	}
}
