package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLog is the size from which a daemon that starts in the background renames its log to daemon.log.1.
const maxLog = 8 << 20

// lateLog keeps log lines in memory until the directory is known to be a home, then writes to the log file. It never
// writes to a directory that is not a home.
type lateLog struct {
	path   string
	rotate bool // whether open renames a file that is too large

	mu   sync.Mutex // guards the fields below
	held []byte
	file *os.File
}

// Write appends to the log. It is safe for concurrent use.
func (l *lateLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return l.file.Write(p)
	}
	l.held = append(l.held, p...)
	return len(p), nil
}

// open starts writing to the file. Standard output and error are redirected to it for messages of the Go runtime.
func (l *lateLog) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := os.Stat(l.path); l.rotate && err == nil && info.Size() > maxLog {
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return fmt.Errorf("daemon log: %w", err)
		}
	}
	if err := l.openLocked(); err != nil {
		return err
	}
	_, err := l.file.Write(l.held)
	l.held = nil
	return err
}

// test fails if the file cannot be written to.
func (l *lateLog) test() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("daemon log: %w", err)
	}
	return f.Close()
}

// reopen goes on in a new file if the path leads to another one than before, as after logrotate has renamed it. If that
// fails, the old one stays.
func (l *lateLog) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openLocked()
}

// openLocked opens the file and closes the one before.
func (l *lateLog) openLocked() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("daemon log: %w", err)
	}
	for _, std := range []int{1, 2} {
		if err := unix.Dup3(int(f.Fd()), std, 0); err != nil {
			return errors.Join(fmt.Errorf("daemon log: %w", err), f.Close())
		}
	}
	if l.file != nil {
		_ = l.file.Close() // each write has reached the kernel
	}
	l.file = f
	return nil
}
