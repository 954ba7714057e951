package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"snapfs/sandbox/api"
)

// Engine is what only the complete command links: the store and the file system.
type Engine struct {
	// Serve is the life of a daemon.
	Serve func(ctx context.Context, o ServeOptions) error
	// RebuildIndex makes the index of a home's store anew.
	RebuildIndex func(ctx context.Context, home string, progress func(api.Progress)) (api.RebuildResult, error)
}

// ServeOptions say how a daemon serves.
type ServeOptions struct {
	Home      string
	MustExist bool
	Remount   bool

	Transport   string // of mounts that do not say: auto, uring or dev
	EnableURing bool
	IdleAfter   time.Duration // 0: never idle

	MaxSnapshots int   // of one session; 0 is the default, below 0 any number
	MaxBytes     int64 // of one session's images; 0 is any

	Version string    // as clients see it
	Metrics string    // local address, "" for none
	Log     io.Writer // unless LogPath is set
	LogPath string    // file in the home
	Verbose bool
	Ready   func() // called once, when it serves
}

// engineName is the file name of the complete command where a client is installed as snapfs.
const engineName = "snapfs-engine"

// enginePath finds the program that can serve: this one, or the complete command that is installed with it, beside it
// (PREFIX/bin) or in PREFIX/libexec/snapfs.
func (a *app) enginePath() (string, error) {
	self, err := os.Executable() // symbolic links are resolved: the kernel's own is read
	if err != nil || a.Engine != nil {
		return self, err
	}
	return engineBeside(self)
}

// engineBeside finds the complete command that belongs to the client at self.
func engineBeside(self string) (string, error) {
	dir := filepath.Dir(self)
	places := []string{filepath.Join(dir, engineName), filepath.Join(filepath.Dir(dir), "libexec", "snapfs", engineName)}
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", failure(api.ErrUnavailable, "this is the client alone, and the engine is missing: there is neither %s",
		strings.Join(places, " nor "))
}

// execEngine goes on as the complete command, with the same arguments. It returns only if that is impossible.
func execEngine() error {
	path, err := (&app{}).enginePath()
	if err != nil {
		return err
	}
	err = syscall.Exec(path, os.Args, os.Environ())
	if errors.Is(err, syscall.ENOENT) { // of a dynamic program: its loader
		err = failure(api.ErrUnavailable, "what it needs to run is missing: %w", err)
	}
	return fmt.Errorf("run %s: %w", path, err)
}
