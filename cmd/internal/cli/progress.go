package cli

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"snapfs/sandbox/api"
)

// meter draws a progress bar on a terminal. Elsewhere it does nothing. Its report may be called concurrently.
type meter struct {
	box  *mpb.Progress // nil if nothing is drawn; immutable
	line atomic.Pointer[string]

	mu    sync.Mutex // guards what follows
	bar   *mpb.Bar
	spins bool // the total is unknown
}

// newMeter returns a meter. Callers must call done.
func (a *app) newMeter() *meter {
	m := &meter{}
	if f, ok := a.err.(*os.File); ok && !a.quiet && !a.json && term.IsTerminal(int(f.Fd())) {
		m.box = mpb.New(mpb.WithOutput(f), mpb.WithWidth(40))
	}
	return m
}

// report is the Progress callback of a request. It is nil if nothing is drawn, so that the daemon need not count.
func (m *meter) report() func(api.Progress) {
	if m.box == nil {
		return nil
	}
	return func(p api.Progress) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.bar != nil && m.spins && p.Total >= 0 { // the total is known now
			m.bar.Abort(true)
			m.bar = nil
		}
		if m.bar == nil {
			m.spins = p.Total < 0
			options := []mpb.BarOption{
				mpb.BarRemoveOnComplete(),
				mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return m.text() })),
			}
			if p.Total < 0 {
				m.bar = m.box.AddSpinner(0, append(options, mpb.BarWidth(1))...)
			} else {
				m.bar = m.box.AddBar(p.Total, options...)
			}
		}
		count := size
		if p.Unit != "" {
			count = func(n int64) string { return strconv.FormatInt(n, 10) }
		}
		line := p.Stage
		if p.Stage != api.StageWaiting {
			line += " " + count(p.Bytes)
		}
		if p.Total >= 0 {
			line += " of " + count(p.Total)
		}
		if p.Unit != "" {
			line += " " + p.Unit
		}
		if p.Files > 0 {
			line += fmt.Sprintf(", %d files", p.Files)
		}
		line += " "
		m.line.Store(&line)
		m.bar.SetTotal(max(p.Total, p.Bytes+1), false) // one more: the bar must not complete before done
		m.bar.SetCurrent(p.Bytes)
	}
}

// text is called by the bar's own goroutine, which must not wait for report.
func (m *meter) text() string {
	if line := m.line.Load(); line != nil {
		return *line
	}
	return ""
}

// done removes the bar.
func (m *meter) done() {
	if m.box == nil {
		return
	}
	m.mu.Lock()
	bar := m.bar
	m.mu.Unlock()
	if bar != nil {
		bar.Abort(true)
	}
	m.box.Wait()
}
