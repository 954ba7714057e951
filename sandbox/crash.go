package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"snapfs/sandbox/internal/catalog"
)

const (
	// crashesTold is how many deaths of processes that held the home are recorded: the newest.
	crashesTold = 8
	// crashText bounds what is recorded of one, in bytes.
	crashText = 500
)

// recordCrashes notes in the logs of the workspaces that are wanted mounted why the processes before this one have
// died, with the last lines of their log.
func (h *Home) recordCrashes(ctx context.Context, deaths []Death, lastLog []string) {
	deaths = deaths[max(0, len(deaths)-crashesTold):]
	if len(deaths) == 0 {
		return
	}
	mounts := map[string]string{} // by workspace: what has become of its mount
	for _, w := range h.catalog.Workspaces() {
		if w.Mount == nil || !w.Mount.Mounted {
			continue
		}
		mounts[w.ID] = "its mount had to be made again"
		if h.liveOf(w.ID) != nil {
			mounts[w.ID] = "its mount went on"
		}
	}
	_, err := h.catalog.Update(ctx, false, func(ch *catalog.Change) error {
		for _, name := range slices.Sorted(maps.Keys(mounts)) {
			for i, d := range deaths {
				text := fmt.Sprintf("daemon %d: %s; %s", d.PID, crashReason(d), mounts[name])
				if i == len(deaths)-1 && len(lastLog) > 0 {
					text += "; last log lines: " + strings.Join(lastLog, " | ")
				}
				e := h.event(EventDaemonCrashed, name, "", "", oneLine(text, crashText))
				e.Level = "warn"
				if !d.Time.IsZero() {
					e.At = d.Time.UTC()
				}
				ch.Events = append(ch.Events, e)
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		h.log.Warn("recording why an earlier daemon has died", "error", err)
	}
}

// crashReason says how a process ended.
func crashReason(d Death) string {
	text := d.Reason
	if text == "" {
		text = "it ended without a word"
	}
	if d.Message != "" {
		text += " (" + d.Message + ")"
	}
	return text
}

// oneLine makes a line of at most so many bytes out of a text.
func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-3], "") + "..."
	}
	return text
}
