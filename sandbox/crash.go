package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	snapfuse "snapfs/fs"
	"snapfs/internal/livestate"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

const (
	// mostCrashes is how many deaths of processes that held the home are recorded: the newest.
	mostCrashes = 8
	// crashText bounds what is recorded of one, in bytes.
	crashText = 500
)

// RecordDeaths notes in the logs of the workspaces that are wanted mounted why the processes before this one have died,
// with the last lines of their log. It is called once, when this process serves: until then its own death may come, and
// the next one is told of the same deaths.
func (h *Home) RecordDeaths(ctx context.Context) {
	deaths := h.deaths[max(0, len(h.deaths)-mostCrashes):]
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
	told, err := h.crashesTold(ctx, slices.Collect(maps.Keys(mounts)))
	if err != nil {
		h.log.Warn("reading which deaths of earlier daemons are recorded", "error", err)
	}
	_, err = h.catalog.Update(ctx, false, func(ch *catalog.Change) error {
		for _, name := range slices.Sorted(maps.Keys(mounts)) {
			for i, d := range deaths {
				if told[crash{name, d.Time.UnixNano()}] {
					continue
				}
				text := fmt.Sprintf("daemon %d: %s; %s", d.PID, crashReason(d), mounts[name])
				text = oneLine(text, crashText)
				if i == len(deaths)-1 {
					text += lastLines(h.lastLog, crashText-len(text))
				}
				e := h.event(EventDaemonCrashed, name, "", "", text)
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

// crash is the death of a daemon, by its time, in the log of a workspace.
type crash struct {
	workspace string
	at        int64
}

// crashesTold gives which deaths the logs of workspaces have: this process is told once more of those that one recorded
// which died right afterwards.
func (h *Home) crashesTold(ctx context.Context, workspaces []string) (map[crash]bool, error) {
	told := map[crash]bool{}
	for _, name := range workspaces {
		err := h.catalog.Events(ctx, name, func(e Event) error {
			if e.Kind == EventDaemonCrashed {
				told[crash{name, e.At.UnixNano()}] = true
			}
			return nil
		})
		if err != nil {
			return told, err
		}
	}
	return told, nil
}

// crashed reports whether the process that has served a mount last died by a fault of its own.
func (h *Home) crashed(state *livestate.State) bool {
	pid := state.Claimant()
	return slices.ContainsFunc(h.deaths, func(d Death) bool { return d.PID == pid && d.ByFault() })
}

// refusedWait is how long a request that is refused waits for its event: nothing is to be left of it when the next one
// ends this process.
const refusedWait = 5 * time.Second

// refused gives what tells of requests of a workspace that are answered with EIO, as daemons have died of them.
func (h *Home) refused(workspace string) func(snapfuse.Refused) {
	return func(r snapfuse.Refused) {
		ctx, cancel := context.WithTimeout(h.ctx, refusedWait)
		defer cancel()
		text := fmt.Sprintf("%s in node %d", r.Request, r.Node)
		for i, name := range r.Names {
			text += []string{" of ", " and "}[min(i, 1)] + api.Quoted(name)
		}
		text += ": answered with EIO, as three daemons have died of it within a minute"
		_, err := h.catalog.Update(ctx, false, func(ch *catalog.Change) error {
			e := h.event(EventRequestRefused, workspace, "", "", oneLine(text, crashText))
			e.Level = "warn"
			ch.Events = append(ch.Events, e)
			return nil
		})
		if err != nil {
			h.log.Warn("recording a request that is refused", "error", err)
		}
	}
}

// panics are what Go's runtime begins its last words with.
var panics = []string{"panic: ", "fatal error: ", "SIG", "unexpected fault address "}

// lastLines is as much of the end of a log as goes into so many bytes: from the line on with which a panic began, if one
// did.
func lastLines(lines []string, most int) string {
	const title = "; last log lines: "
	for i, line := range slices.Backward(lines) {
		if slices.ContainsFunc(panics, func(p string) bool { return strings.HasPrefix(line, p) }) {
			return oneLine(title+strings.Join(lines[i:], " | "), most)
		}
	}
	for len(lines) > 0 {
		if text := title + strings.Join(lines, " | "); len(text) <= most || len(lines) == 1 {
			return oneLine(text, most)
		}
		lines = lines[1:]
	}
	return ""
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
		text = strings.ToValidUTF8(text[:max(0, most-3)], "") + "..."
	}
	return text
}
