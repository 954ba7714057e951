package sandbox

import (
	"context"
	"fmt"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// Refusal is a call of the service that was refused, or several that are alike.
type Refusal struct {
	Call    string // what was asked for, as "snapshot" or "GET /api/v1/sandboxes"
	Session string // of who asked; "" if nobody knows
	Token   string // its id; "" if there is none
	Remote  string // address, or user of this machine
	Request string // id of the request
	Why     string
	Times   int // how often; 0 is once
}

// RecordRefusals notes in the event log that calls were refused. It does not wait for the disk.
func (h *Home) RecordRefusals(ctx context.Context, all ...Refusal) error {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = h.catalog.Update(ctx, false, func(ch *catalog.Change) error {
		for _, r := range all {
			e := h.event(EventCallRefused, "", r.Session, "", oneLine(r.text(), crashText))
			e.Level = "warn"
			ch.Events = append(ch.Events, e)
		}
		return nil
	})
	return err
}

// text is what the event of a refusal says.
func (r Refusal) text() string {
	text := r.Call + " from " + r.Remote
	if r.Token != "" {
		text += ", token " + r.Token
	}
	if r.Request != "" {
		text += ", request " + r.Request
	}
	if r.Times > 1 {
		text += fmt.Sprintf(", %d times", r.Times)
	}
	return text + ": " + api.Quoted(r.Why)
}
