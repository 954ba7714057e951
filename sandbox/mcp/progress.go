package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/sandbox/api"
)

// progressPause is the time between two reports of progress to a client.
const progressPause = 200 * time.Millisecond

// progress gives what passes the progress of a call on to the client, nil if that has not asked for it, and what ends
// that. Whatever works does not wait for the client: a slow one gets the newest only.
func (c *call) progress(ctx context.Context) (report func(api.Progress), end func()) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return nil, func() {}
	}
	news, ended, done := make(chan api.Progress, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for step := 1.0; ; step++ {
			select {
			case p := <-news:
				_ = c.request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // the client may be gone
					ProgressToken: token, Progress: step, Message: stage(p),
				})
			case <-ended:
				return
			}
			select {
			case <-time.After(progressPause):
			case <-ended:
				return
			}
		}
	}()
	report = func(p api.Progress) {
		select {
		case <-news: // older
		default:
		}
		select {
		case news <- p:
		default: // another report of the same call
		}
	}
	return report, func() { close(ended); <-done }
}

// stage words progress.
func stage(p api.Progress) string {
	unit := p.Unit
	if unit == "" {
		unit = "bytes"
	}
	switch {
	case p.Files == 0 && p.Bytes == 0:
		return p.Stage
	case p.Total > 0:
		return fmt.Sprintf("%s: %d of %d %s, %d files", p.Stage, p.Bytes, p.Total, unit, p.Files)
	}
	return fmt.Sprintf("%s: %d %s, %d files", p.Stage, p.Bytes, unit, p.Files)
}
