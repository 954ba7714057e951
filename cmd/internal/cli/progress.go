package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"snapfs/sandbox/api"
)

const (
	drawEvery = 100 * time.Millisecond
	barWidth  = 40 // of characters
)

// meter draws one line about long work on a terminal: what was done, and a bar of how much of it there is. Elsewhere it
// does nothing. Its report may be called concurrently. It is small on purpose: a library for bars takes a tenth of the
// time in which the command starts.
type meter struct {
	out   io.Writer  // nil where nothing is drawn; immutable
	width func() int // of the terminal, 0 if unknown; immutable
	stop  chan struct{}
	ended chan struct{} // closed when nothing more is drawn

	mu    sync.Mutex    // guards what follows
	last  *api.Progress // nil before the first report
	ticks int
}

// newMeter gives a meter; the caller calls done.
func (a *app) newMeter() *meter {
	f, ok := a.err.(*os.File)
	if !ok || a.quiet || a.json || !term.IsTerminal(int(f.Fd())) {
		return &meter{}
	}
	return startMeter(f, func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return width
	})
}

// startMeter gives a meter that draws to out.
func startMeter(out io.Writer, width func() int) *meter {
	m := &meter{out: out, width: width, stop: make(chan struct{}), ended: make(chan struct{})}
	go m.draw()
	return m
}

// report is the Progress callback of a request; nil where nothing is drawn, so that nobody counts for nothing.
func (m *meter) report() func(api.Progress) {
	if m.out == nil {
		return nil
	}
	return func(p api.Progress) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.last = &p
	}
}

// draw draws until stop is closed, and then clears the line.
func (m *meter) draw() {
	defer close(m.ended)
	ticker := time.NewTicker(drawEvery)
	defer ticker.Stop()
	drawn := false
	for {
		select {
		case <-m.stop:
			if drawn {
				_, _ = io.WriteString(m.out, "\r\x1b[K") // best effort
			}
			return
		case <-ticker.C:
		}
		if text := m.text(); text != "" {
			drawn = true
			_, _ = io.WriteString(m.out, "\r"+text+"\x1b[K") // best effort
		}
	}
}

// text is what is drawn now, empty before the first report.
func (m *meter) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		return ""
	}
	m.ticks++
	text := describe(*m.last) + " " + bar(*m.last, m.ticks)
	// A longer line would wrap, and could not be cleared. All characters are one column wide.
	if width := m.width(); width > 0 && len(text) >= width {
		text = text[:width-1]
	}
	return text
}

// describe says what p reports, as "storing 1.2 MiB of 4.0 MiB, 30 files".
func describe(p api.Progress) string {
	count := size
	if p.Unit != "" {
		count = func(n int64) string { return strconv.FormatInt(n, 10) }
	}
	text := p.Stage
	if p.Stage != api.StageWaiting {
		text += " " + count(p.Bytes)
	}
	if p.Total >= 0 {
		text += " of " + count(p.Total)
	}
	if p.Unit != "" {
		text += " " + p.Unit
	}
	if p.Files > 0 {
		text += fmt.Sprintf(", %d files", p.Files)
	}
	return text
}

// bar draws how much of p is done, or something that moves if that is unknown.
func bar(p api.Progress, ticks int) string {
	if p.Total < 0 {
		return string(`|/-\`[ticks%4])
	}
	done := barWidth
	if p.Total > 0 {
		done = int(barWidth * min(max(float64(p.Bytes)/float64(p.Total), 0), 1))
	}
	return "[" + strings.Repeat("=", done) + strings.Repeat("-", barWidth-done) + "]"
}

// done clears the line. Nothing is drawn after it.
func (m *meter) done() {
	if m.out == nil {
		return
	}
	close(m.stop)
	<-m.ended
}
