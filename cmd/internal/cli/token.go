package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// tokenActions are what 'token' can do.
var tokenActions = []string{"create", "list", "revoke"}

func (a *app) tokenCommand() *cobra.Command {
	var (
		r      api.TokenRequest
		ttl    string
		scopes []string
	)
	cmd := &cobra.Command{
		Use:   "token ACTION [ID...]",
		Short: "make, list and revoke tokens for the network",
		Long: `With a token, a program uses what 'snapfs serve --listen' serves: the workspaces and snapshots of one session,
that of --session, and nothing of others. Paths of the host, such as mountpoints, are not for it.

ACTION create makes one and prints its secret, which cannot be found out later: the home keeps a hash of it
only. ACTION list lists those of the session, or with --allow-cross-session of all. ACTION revoke ends tokens,
by their ids or the beginnings of these: calls that are under way go on. All of this is in 'snapfs events', and
so is every call that is refused.

Without --ttl a token does not expire. --scopes says what it may do, without it all but the last:

  read         look: files, lists, comparisons, events, exports
  write        change files
  snapshots    make and delete snapshots; turns, undo, rollback, apply, documents
  workspaces   make, mount, pause and destroy workspaces
  metrics      read what is measured of the home, of all sessions together

Clients send the secret as 'Authorization: Bearer SECRET', or in the header X-API-Key.`,
		Example: `  snapfs token create --session build --ttl 30d --description "the build farm"
  snapfs token create --scopes read,write --json
  snapfs token list --allow-cross-session`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			switch {
			case len(args) == 0:
				return tokenActions, cobra.ShellCompDirectiveNoFileComp
			case args[0] == "revoke":
				return a.tokenIDs(typed), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("missing ACTION")
			case !slices.Contains(tokenActions, args[0]):
				return usagef("ACTION %q: create, list or revoke", args[0])
			case args[0] == "revoke" && len(args) == 1:
				return usagef("missing ID")
			case args[0] != "revoke" && len(args) > 1:
				return usagef("unexpected argument %q", args[1])
			}
			return nil
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, flag := range []string{"ttl", "scopes", "description"} {
			if cmd.Flags().Changed(flag) && args[0] != "create" {
				return usagef("--%s is for create", flag)
			}
		}
		ctx := cmd.Context()
		switch args[0] {
		case "create":
			if err := parseToken(&r, ttl, scopes); err != nil {
				return err
			}
			r.Access = a.access()
			return a.withClient(ctx, anyHome, func(c *client.Client) error { return a.createToken(ctx, c, r) })
		case "list":
			return a.withClient(ctx, existingHome, func(c *client.Client) error { return a.listTokens(ctx, c) })
		}
		return a.withClient(ctx, existingHome, func(c *client.Client) error {
			return a.each(ctx, args[1:], "revoked", func(id string) (string, error) {
				return id, c.RevokeToken(ctx, api.RefRequest{Access: a.access(), Ref: id})
			})
		})
	}
	f := cmd.Flags()
	f.StringVar(&ttl, "ttl", "", "with create: the token expires after `DURATION`, such as 90m, 72h or 7d")
	f.StringSliceVar(&scopes, "scopes", nil, "with create: let it do only what is in `LIST`, such as read,write")
	f.StringVar(&r.Description, "description", "", "with create: note `TEXT` with it")
	return cmd
}

// parseToken reads --ttl and --scopes.
func parseToken(r *api.TokenRequest, ttl string, scopes []string) error {
	if ttl != "" {
		d, err := parseDuration(ttl)
		if err != nil || d <= 0 {
			return usagef("--ttl %q: a positive duration such as 90m, 72h or 7d", ttl)
		}
		r.TTL = d
	}
	for _, s := range scopes {
		scope := api.Scope(strings.TrimSpace(s))
		if !slices.Contains(api.KnownScopes(), scope) {
			return usagef("--scopes %q: read, write, snapshots, workspaces or metrics", s)
		}
		r.Scopes = append(r.Scopes, scope)
	}
	return nil
}

// createToken makes a token and prints its secret, alone on standard output.
func (a *app) createToken(ctx context.Context, c *client.Client, r api.TokenRequest) error {
	made, err := c.CreateToken(ctx, r)
	if err != nil {
		return err
	}
	return a.result(made, func(w io.Writer) error {
		until := "until it is revoked"
		if made.ExpiresAt != nil {
			until = "until " + moment(*made.ExpiresAt)
		}
		a.note("token %s of session %s, %s; its secret is not shown again:", made.ID, made.Session, until)
		return line(made.Secret)(w)
	})
}

// listTokens prints all tokens of the session, or of all.
func (a *app) listTokens(ctx context.Context, c *client.Client) error {
	all := api.TokenPage{Tokens: []api.Token{}}
	for r := (api.ListRequest{Access: a.access()}); ; {
		page, err := c.Tokens(ctx, r)
		if err != nil {
			return err
		}
		all.Tokens = append(all.Tokens, page.Tokens...)
		if !page.More || len(page.Tokens) == 0 {
			break
		}
		r.After = page.Tokens[len(page.Tokens)-1].ID
	}
	return a.result(all, func(w io.Writer) error {
		rows := make([][]string, 0, len(all.Tokens))
		for _, t := range all.Tokens {
			expires := "-"
			if t.ExpiresAt != nil {
				expires = moment(*t.ExpiresAt)
				if time.Now().After(*t.ExpiresAt) {
					expires = "expired"
				}
			}
			rows = append(rows, []string{
				t.ID, t.Session, scopeWords(t.Scopes), moment(t.CreatedAt), expires, orDash(quoteIf(t.Description)),
			})
		}
		return table(w, "ID SESSION SCOPES CREATED EXPIRES DESCRIPTION", rows)
	})
}

// scopeWords are scopes as --scopes takes them.
func scopeWords(scopes []api.Scope) string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return strings.Join(words, ",")
}

// tokenIDs are the ids of tokens that begin with what was typed. Whatever goes wrong, nothing is offered.
func (a *app) tokenIDs(typed string) (found []cobra.Completion) {
	if a.resolveHome() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	c, err := client.DialAs(ctx, a.home, a.Version)
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close() }() // nothing follows
	page, err := c.Tokens(ctx, api.ListRequest{Access: a.access()})
	if err != nil {
		return nil
	}
	for _, t := range page.Tokens {
		if strings.HasPrefix(t.ID, typed) {
			found = append(found, cobra.CompletionWithDesc(t.ID, strings.TrimSpace(scopeWords(t.Scopes)+" "+quoteIf(t.Description))))
		}
	}
	return found
}
