package takeover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/engine"
)

// ask asks the server of a directory for its attributes.
func ask(dir string) error {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// probe is a program that writes and asks for attributes all the time.
type probe struct {
	file  *os.File
	end   chan struct{}
	ended chan error

	mu      sync.Mutex
	longest time.Duration // guarded by mu: that a call took since the last take
	since   time.Time     // guarded by mu: when the call under way began
}

func newProbe(dir string) (*probe, error) {
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return nil, err
	}
	p := &probe{file: f, end: make(chan struct{}), ended: make(chan error, 1), since: time.Now()}
	go func() { p.ended <- p.run(dir) }()
	return p, nil
}

func (p *probe) run(dir string) error {
	for i := int64(0); ; i++ {
		select {
		case <-p.end:
			return nil
		case <-time.After(time.Millisecond):
		}
		for _, call := range []func() error{
			func() error { _, err := p.file.WriteAt([]byte{byte(i)}, i%(1<<20)); return err },
			func() error { return ask(dir) },
		} {
			p.begin()
			if err := call(); err != nil {
				return err
			}
			p.note()
		}
	}
}

func (p *probe) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
}

func (p *probe) note() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest = max(p.longest, time.Since(p.since))
	p.since = time.Time{}
}

// take is the longest that a call took since the last take, the one under way too.
func (p *probe) take() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.longest
	if !p.since.IsZero() {
		d = max(d, time.Since(p.since))
	}
	p.longest = 0
	return d
}

func (p *probe) stop() error {
	close(p.end)
	return errors.Join(<-p.ended, p.file.Close())
}

// work is what other programs do.
type work struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
	mu     sync.Mutex
	errs   []error // guarded by mu
}

// startWork begins the work of a setting in a directory.
func startWork(ctx context.Context, s setting, h engine.Home, dir string) *work {
	w := &work{}
	ctx, w.cancel = context.WithCancel(ctx)
	if s.busy {
		for i := range 4 {
			w.repeat(ctx, changing(filepath.Join(dir, fmt.Sprint("busy", i))))
		}
	}
	if s.sealing {
		w.repeat(ctx, func() error {
			return h.Run(context.WithoutCancel(ctx), nil, "snapshot", filepath.Base(dir), "--no-sync")
		})
	}
	return w
}

// repeat does something until the work is stopped, or it fails.
func (w *work) repeat(ctx context.Context, fn func() error) {
	w.group.Go(func() {
		for ctx.Err() == nil {
			if err := fn(); err != nil {
				w.mu.Lock()
				w.errs = append(w.errs, err)
				w.mu.Unlock()
				return
			}
		}
	})
}

// changing makes, renames and removes files, and keeps one of them open.
func changing(path string) func() error {
	buf := make([]byte, 64<<10)
	return func() error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		if err = os.Rename(path, path+".new"); err == nil {
			_, err = f.Write(buf)
		}
		return errors.Join(err, os.Remove(path+".new"), f.Close())
	}
}

func (w *work) stop() error {
	w.cancel()
	w.group.Wait()
	return errors.Join(w.errs...)
}
