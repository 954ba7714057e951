package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows one line of what is going on, on a terminal only. Safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	out   *os.File // nil: shows nothing
	last  time.Time
	shown bool
}

func newProgress(out *os.File) *progress {
	if !term.IsTerminal(int(out.Fd())) {
		out = nil
	}
	return &progress{out: out}
}

// step shows that done of total of what are done; at most some times a second.
func (p *progress) step(what string, done, total int) {
	const width, pause = 30, 100 * time.Millisecond
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil || time.Since(p.last) < pause && done != total {
		return
	}
	p.last, p.shown = time.Now(), true
	filled := width
	if total > 0 {
		filled = min(width, width*done/total)
	}
	bar := make([]byte, width)
	for i := range bar {
		bar[i] = '.'
		if i < filled {
			bar[i] = '#'
		}
	}
	fmt.Fprintf(p.out, "\r\x1b[K[%s] %d/%d %s", bar, done, total, what)
}

// say shows what is going on where the amount of work is not known.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil {
		p.shown = true
		fmt.Fprintf(p.out, "\r\x1b[K"+format, args...)
	}
}

// clear removes the line.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

func (p *progress) done() { p.clear() }
