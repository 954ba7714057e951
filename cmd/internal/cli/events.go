package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) logCommand() *cobra.Command {
	return a.eventVerb(&cobra.Command{
		Use:   "log NAME",
		Short: "show what happened to a workspace",
		Long: `Shows the log of workspace NAME, oldest first: when it was created, mounted, frozen, restored,
branched, rolled back and destroyed, and by which session. The log is kept after the workspace is
destroyed. Each line begins with the id of the event. With --json, each event is one line of JSON.`,
		Example: "  snapfs log app\n  snapfs log app --after 0199d5a4-7a1e-7c3b-8f00-2b1d5e6f7a8b --json",
		Args:    exact("NAME"),
	})
}

func (a *app) eventsCommand() *cobra.Command {
	return a.eventVerb(&cobra.Command{
		Use:   "events",
		Short: "show what happened to all workspaces of the session",
		Long: `Shows the events of all workspaces of the session, oldest first. With --follow, continues with new
events until it is interrupted. Each line begins with the id of the event, which --after takes. With
--json, each event is one line of JSON.`,
		Example: "  snapfs events --since 1h\n  snapfs events --follow\n  snapfs events --follow --json | jq -r .kind",
		Args:    exact(),
	})
}

// eventVerb gives both verbs their flags and their action.
func (a *app) eventVerb(cmd *cobra.Command) *cobra.Command {
	var r api.EventsRequest
	var since string
	cmd.Annotations = exits(api.ExitNotFound, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Access = a.access()
		if since != "" {
			at, err := parseSince(since, time.Now())
			if err != nil {
				return err
			}
			r.Since = &at
		}
		if len(args) == 1 {
			r.Workspace = args[0]
		}
		return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
			lines := json.NewEncoder(a.out)
			lines.SetEscapeHTML(false)
			err := c.Events(cmd.Context(), r, func(e api.Event) error {
				if a.json {
					return lines.Encode(e)
				}
				_, err := fmt.Fprintln(a.out, eventLine(e))
				return err
			})
			if r.Follow && errors.Is(err, context.Canceled) {
				return nil // an interrupt is the normal end of --follow
			}
			return err
		})
	}
	cmd.Flags().StringVar(&since, "since", "",
		"show only events since `TIME` (RFC 3339), or of the last DURATION, such as 90m or 7d")
	cmd.Flags().StringVar(&r.After, "after", "", "show only events after event `ID`")
	cmd.Flags().BoolVarP(&r.Follow, "follow", "f", false, "continue with new events as they happen")
	return cmd
}

// parseSince reads --since.
func parseSince(text string, now time.Time) (time.Time, error) {
	if d, err := parseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usagef("--since %q: a duration such as 90m or 7d, or a time such as 2031-05-01T12:00:00Z", text)
	}
	return at, nil
}

// eventLine formats an event as text.
func eventLine(e api.Event) string {
	text := fmt.Sprintf("%s  %s  %-16s %s", e.ID, moment(e.At), e.Kind, orDash(e.Workspace))
	if e.Snapshot != "" {
		text += "  snapshot " + e.Snapshot
	}
	if e.Session != "" {
		text += "  session " + e.Session
	}
	if e.Detail != "" {
		text += "  " + quote(e.Detail)
	}
	if e.Level == "warn" {
		text += "  (warning)"
	}
	return text
}
