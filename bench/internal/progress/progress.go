package progress

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Bar shows one line of what is going on and how much is left: on a terminal a bar, elsewhere a plain line now and
// then. Work is counted in units that callers choose. Safe for concurrent use.
type Bar struct {
	out      *os.File
	terminal bool

	mu          sync.Mutex // guards what follows
	last        time.Time  // of the newest line
	visible     bool
	prefix      string    // the stage
	start       time.Time // of the first unit
	total, done float64   // units of the stage
}

// New makes a bar that is drawn on out.
func New(out *os.File) *Bar {
	return &Bar{out: out, terminal: term.IsTerminal(int(out.Fd())), last: time.Now()}
}

// Stage begins a part of the run, with work of its own.
func (p *Bar) Stage(i, n int, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total, p.done, p.start = 0, 0, time.Time{}
	p.prefix = name + ": "
	if n > 1 {
		p.prefix = fmt.Sprintf("(%d of %d) %s: ", i, n, name)
	}
}

// Expect announces units of work of this stage.
func (p *Bar) Expect(units float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += units
	if p.start.IsZero() {
		p.start = time.Now()
	}
}

// Did counts announced units as done.
func (p *Bar) Did(units float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = min(p.total, p.done+units)
}

// Step shows that done of total of what are done.
func (p *Bar) Step(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.due(done == total && p.total == 0) {
		return
	}
	share := -1. // unknown
	switch {
	case p.total > 0:
		share = p.done / p.total
	case total > 0:
		share = float64(done) / float64(total)
	}
	if total > 0 {
		what = fmt.Sprintf("%s %d/%d", what, done, total)
	}
	p.line(share, what)
}

// Say shows what is going on.
func (p *Bar) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.due(false) {
		return
	}
	share := -1.
	if p.total > 0 {
		share = p.done / p.total
	}
	p.line(share, fmt.Sprintf(format, args...))
}

// due reports whether it is time for a new line. mu is held.
func (p *Bar) due(now bool) bool {
	pause := 100 * time.Millisecond
	if !p.terminal {
		pause, now = 20*time.Second, false
	}
	if time.Since(p.last) < pause && !now {
		return false
	}
	p.last = time.Now()
	return true
}

// line writes; share is negative where it is not known. mu is held.
func (p *Bar) line(share float64, what string) {
	const width = 30
	left := ""
	// An estimate from less than a fiftieth of the work says nothing.
	if p.total > 0 && share > 0.02 {
		d := time.Duration(float64(time.Since(p.start)) * (1 - share) / share)
		left = fmt.Sprintf(", %s left", d.Round(time.Second))
	}
	percent := ""
	if share >= 0 {
		percent = fmt.Sprintf("%.0f %%%s, ", 100*share, left)
	}
	if !p.terminal {
		fmt.Fprintf(p.out, "%s%s%s\n", p.prefix, percent, what)
		return
	}
	filled := max(0, min(width, int(width*share)))
	bar := strings.Repeat("#", filled) + strings.Repeat(".", width-filled)
	text := fmt.Sprintf("[%s] %s%s%s", bar, percent, p.prefix, what)
	if columns, _, err := term.GetSize(int(p.out.Fd())); err == nil && len(text) >= columns && columns > 1 {
		text = text[:columns-1] // a second line would stay behind
	}
	fmt.Fprint(p.out, "\r\x1b[K"+text)
	p.visible = true
}

// Clear removes the line.
func (p *Bar) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.visible {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.visible = false
	}
}
