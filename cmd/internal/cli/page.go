package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// maxLimit is the most that one page holds.
const maxLimit = 100

// listing builds a verb that shows one page: ask requests it, show prints it.
func listing[Page any](a *app, cmd *cobra.Command, r *api.ListRequest,
	ask func(api.API, context.Context, api.ListRequest) (Page, error), show func(io.Writer, Page) error,
) *cobra.Command {
	cmd.Args = exact()
	cmd.Annotations = exits(api.ExitNotFound, api.ExitRefused, api.ExitUnavailable)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if r.Limit < 1 {
			return usagef("--limit %d: 1 to %d", r.Limit, maxLimit)
		}
		if r.Limit > maxLimit {
			a.note("--limit %d is reduced to %d", r.Limit, maxLimit)
			r.Limit = maxLimit
		}
		r.Access = a.access()
		return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
			page, err := ask(c, cmd.Context(), *r)
			if err != nil {
				return err
			}
			return a.result(page, func(w io.Writer) error { return show(w, page) })
		})
	}
	cmd.Flags().IntVar(&r.Limit, "limit", maxLimit, "show at most `N`; 100 is the most")
	cmd.Flags().StringVar(&r.After, "after", "", "continue after `ID`, the last one of the previous page")
	return cmd
}

// more tells the user how to see the next page.
func (a *app) more(last string) { a.note("there are more: continue with --after %s", last) }
