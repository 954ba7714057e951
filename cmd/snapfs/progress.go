package main

import (
	"os"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"snapfs/sandbox"
)

// meter draws one bar of long work on a terminal; elsewhere it does nothing. Its report may be called concurrently.
type meter struct {
	mu   sync.Mutex // guards all below
	box  *mpb.Progress
	bar  *mpb.Bar
	last sandbox.Progress
}

// newMeter gives a meter; the caller calls done.
func (a *app) newMeter() *meter {
	m := &meter{}
	if f, ok := a.err.(*os.File); ok && !a.quiet && !a.json && term.IsTerminal(int(f.Fd())) {
		m.box = mpb.New(mpb.WithOutput(f), mpb.WithWidth(40))
	}
	return m
}

// report is the Progress callback of a request; nil where nothing is drawn, so that nobody counts for nothing.
func (m *meter) report() func(sandbox.Progress) {
	if m.box == nil {
		return nil
	}
	return func(p sandbox.Progress) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.bar == nil {
			m.bar = m.box.AddBar(max(p.Total, 0),
				mpb.BarRemoveOnComplete(),
				mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return m.stage() })),
				mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f")))
		}
		m.last = p
		m.bar.SetTotal(max(p.Total, p.Bytes+1), false)
		m.bar.SetCurrent(p.Bytes)
	}
}

// stage is drawn by the bar's own goroutine, which must not wait for report.
func (m *meter) stage() string {
	if !m.mu.TryLock() {
		return ""
	}
	defer m.mu.Unlock()
	return m.last.Stage + " "
}

// done takes the bar away.
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
