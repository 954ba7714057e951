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

// paged is a page of a list, as a verb needs to know it.
type paged[Page any] struct {
	ask  func(api.API, context.Context, api.ListRequest) (Page, error)
	show func(io.Writer, Page) error
	// next is where the page after one begins; "" if that is the last.
	next func(api.ListRequest, Page) string
	join func(to *Page, page Page) // adds what follows
}

// pages asks for a page, or for all, and where the next one begins.
func (of paged[Page]) pages(
	c api.API, ctx context.Context, r api.ListRequest, all bool,
) (page Page, next string, err error) {
	if page, err = of.ask(c, ctx, r); err != nil {
		return page, "", err
	}
	next = of.next(r, page)
	for all && next != "" {
		r.After = next
		more, err := of.ask(c, ctx, r)
		if err != nil {
			return page, "", err
		}
		of.join(&page, more)
		next = of.next(r, more)
	}
	return page, next, nil
}

// listing builds a verb that shows one page, or all.
func listing[Page any](a *app, cmd *cobra.Command, r *api.ListRequest, of paged[Page]) *cobra.Command {
	all := false
	cmd.Args = exact()
	cmd.Annotations = exits(api.ExitNotFound, api.ExitRefused, api.ExitUnavailable)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if r.Limit < 1 {
			return usagef("--limit %d: 1 to %d", r.Limit, maxLimit)
		}
		if all && cmd.Flags().Changed("limit") {
			return usagef("--all and --limit exclude each other")
		}
		if r.Limit > maxLimit {
			a.note("--limit %d is reduced to %d; --all shows all", r.Limit, maxLimit)
			r.Limit = maxLimit
		}
		r.Access = a.access()
		return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
			page, next, err := of.pages(c, cmd.Context(), *r, all)
			if err != nil {
				return err
			}
			if err := a.result(page, func(w io.Writer) error { return of.show(w, page) }); err != nil {
				return err
			}
			if next != "" {
				a.note("there are more: continue with --after %s, or show --all", next)
			}
			return nil
		})
	}
	cmd.Flags().IntVar(&r.Limit, "limit", maxLimit, "show at most `N`; 100 is the most")
	cmd.Flags().BoolVar(&all, "all", false, "show all, however many they are")
	cmd.Flags().StringVar(&r.After, "after", "", "continue after `ID`, which the message after the previous page names")
	return cmd
}
