package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/patient"
	"snapfs/sandbox/internal/peer"
)

// archiveWait is for how long a file that a workspace is made from may take to answer one system call; tests have less.
// It is longer than sourceWait, because only the call that has named it waits.
var archiveWait = 30 * time.Second

// patience gives the Wait for a file that a call has named. ErrUnavailable: too many of its user do not answer.
func (h *Home) patience(ctx context.Context, path string) (patient.Wait, error) {
	by := peer.From(ctx)
	if h.manySilent(by) {
		return nil, fmt.Errorf("%w: %d files or directories that were named before do not answer yet: try again when they do",
			ErrUnavailable, mostSilent)
	}
	errSilent := fmt.Errorf("%w: %s does not answer within %v", ErrUnavailable, api.Quoted(path), archiveWait)
	return func(fn func() error, late func()) error {
		return h.answeredWithin(ctx, archiveWait, by, errSilent, fn, late)
	}, nil
}

// patiently runs fn, which looks at a path that a call has named, with the rights of the call's user, and gives what it
// gives, unless the path does not answer.
func patiently[T any](ctx context.Context, h *Home, path string, fn func() (T, error)) (T, error) {
	var got, none T
	wait, err := h.patience(ctx, path)
	if err != nil {
		return none, err
	}
	err = wait(func() error {
		return asUser(ctx, func() (err error) {
			got, err = fn()
			return err
		})
	}, nil)
	if err != nil {
		return none, err // got may still be written to
	}
	return got, nil
}

// openNamed opens a regular file that a call has named, with the rights of the call's user. It may be anything by now.
func (h *Home) openNamed(ctx context.Context, path string) (*patient.File, error) {
	wait, err := h.patience(ctx, path)
	if err != nil {
		return nil, err
	}
	f, err := patient.Open(wait, func() (f *os.File, err error) {
		err = asUser(ctx, func() (err error) {
			if f, err = hosttree.Open(path, unix.O_RDONLY|unix.O_NONBLOCK); err != nil {
				err = pathError(path, err)
			}
			return err
		})
		return f, err
	})
	if err != nil {
		return nil, err
	}
	if !f.Info().Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%w: %s is not a file", ErrInvalid, path), f.Close())
	}
	return f, nil
}
