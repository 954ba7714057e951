package httpapi

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"strconv"
	"time"

	"snapfs/sandbox/api"
)

// Labels that the adapter puts on workspaces.
const (
	labelKind       = "rest/kind" // kindSandbox or kindVolume
	labelTemplate   = "rest/template"
	labelTTL        = "rest/ttl" // seconds
	labelHardTTL    = "rest/hard-ttl"
	labelExpires    = "rest/expires" // RFC 3339
	labelEnds       = "rest/hard-expires"
	labelAutoResume = "rest/auto-resume" // "false", or not there
	labelGeneration = "rest/generation"
	labelMemory     = "rest/memory"
	labelUpdated    = "rest/updated"
	labelSource     = "rest/source-volume"
	labelAccessMode = "rest/access-mode"
	labelUID        = "rest/default-uid"
	labelGID        = "rest/default-gid"
)

// Kinds of workspaces that the adapter makes.
const (
	kindSandbox = "sandbox"
	kindVolume  = "volume"
)

// facts are what the labels of a workspace say of it as a sandbox. What does not parse counts as not there: labels are
// the user's, too.
type facts struct {
	template   string
	ttl, hard  int64 // seconds; 0: no end
	expires    time.Time
	ends       time.Time
	autoResume bool
	generation int64
	memory     string
	updated    time.Time
}

func factsOf(w api.Workspace) facts {
	l := w.Labels
	number := func(key string) int64 {
		n, err := strconv.ParseInt(l[key], 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	return facts{
		template: cmp.Or(l[labelTemplate], templateOf(w)), ttl: number(labelTTL), hard: number(labelHardTTL),
		expires: timeLabel(l, labelExpires), ends: timeLabel(l, labelEnds), autoResume: l[labelAutoResume] != "false",
		generation: max(number(labelGeneration), 1), memory: l[labelMemory],
		updated: later(w.CreatedAt, timeLabel(l, labelUpdated)),
	}
}

// templateOf is the template of a workspace that was not claimed.
func templateOf(w api.Workspace) string {
	return cmp.Or(w.Origin, templateDefault)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// timeLabel is the time that a label says; the zero time if it says none.
func timeLabel(l api.Labels, key string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, l[key])
	if err != nil {
		return time.Time{}
	}
	return at
}

// ends puts the time at which something ends, and how long it has until then in all, into labels; 0: it does not end.
func setEnd(l api.Labels, keyTTL, keyEnd string, seconds int64, now time.Time) {
	l[keyTTL] = strconv.FormatInt(seconds, 10)
	l[keyEnd] = ""
	if seconds > 0 {
		l[keyEnd] = now.Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339Nano)
	}
}

// configure puts what a caller wants of a sandbox into labels. absent if it wants what no file system has.
func configure(l api.Labels, c *Config, now time.Time) error {
	if c == nil {
		return nil
	}
	switch {
	case len(c.Network) > 0:
		return absent("config.network")
	case len(c.Webhook) > 0:
		return absent("config.webhook")
	case len(c.Services) > 0:
		return absent("config.services")
	}
	if c.TTL != nil {
		setEnd(l, labelTTL, labelExpires, *c.TTL, now)
	}
	if c.HardTTL != nil {
		setEnd(l, labelHardTTL, labelEnds, *c.HardTTL, now)
	}
	if c.AutoResume != nil {
		l[labelAutoResume] = strconv.FormatBool(*c.AutoResume)
	}
	if c.Resources != nil {
		l[labelMemory] = c.Resources.Memory
	}
	return nil
}

// inherited are the labels of a fork.
func inherited(w api.Workspace, c *ForkConfig, now time.Time) api.Labels {
	f := factsOf(w)
	l := maps.Clone(w.Labels)
	if l == nil {
		l = api.Labels{}
	}
	l[labelKind], l[labelTemplate], l[labelGeneration], l[labelUpdated] = kindSandbox, f.template, "1", ""
	if c != nil && c.TTL != nil {
		f.ttl = *c.TTL
	}
	if c != nil && c.HardTTL != nil {
		f.hard = *c.HardTTL
	}
	setEnd(l, labelTTL, labelExpires, f.ttl, now)
	setEnd(l, labelHardTTL, labelEnds, f.hard, now)
	return l
}

// state of a workspace as a sandbox.
func state(w api.Workspace) Status {
	if w.Paused || w.State != api.Mounted {
		return Paused
	}
	return Running
}

// isVolume reports whether a workspace is a volume; others are sandboxes.
func isVolume(w api.Workspace) bool { return w.Labels[labelKind] == kindVolume }

// describe is a workspace as a sandbox.
func describe(w api.Workspace) Sandbox {
	f := factsOf(w)
	s := Sandbox{
		ID: w.ID, TemplateID: f.template, TeamID: w.Session, Status: state(w), Paused: state(w) == Paused,
		AutoResume: f.autoResume, PodName: w.ID, RuntimeGeneration: f.generation, ExpiresAt: f.expires,
		HardExpiresAt: f.ends, ClaimedAt: w.CreatedAt, CreatedAt: w.CreatedAt, UpdatedAt: f.updated,
		Mountpoint: w.Mountpoint,
	}
	if f.memory != "" {
		s.Resources = &Resources{Memory: f.memory}
	}
	return s
}

// newName is a name for a workspace that nobody has chosen. Nobody guesses it.
func newName(prefix string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + "-" + hex.EncodeToString(b[:])
}
