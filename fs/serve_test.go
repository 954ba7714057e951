package fs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/fs/internal/fakefs"
)

// transportOfTest is what the run of the tests is about; internal/testmount sets it.
func transportOfTest() string { return os.Getenv("SNAPFS_TEST_TRANSPORT") }

// serveFake mounts the fake in this process; the test reaches it only through other programs.
func serveFake(t *testing.T, f *fakefs.FS) (*Mount, string, *fakefs.Log) {
	t.Helper()
	dir := t.TempDir()
	log := new(fakefs.Log)
	opts := Options{Transport: transportOfTest(), Logger: slog.New(slog.NewTextHandler(log, nil))}
	opts.setDefaults()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := serve(ctx, f, dir, nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.AnswerAll()
		if err := m.Unmount(true); err != nil {
			t.Errorf("unmount: %v", err)
		}
		fakefs.WaitDone(t, m.Done())
	})
	return m, dir, log
}

// TestMountErrors checks what New says of mountpoints that will not do.
func TestMountErrors(t *testing.T) {
	m, used, _ := serveFake(t, fakefs.New())
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := Options{}
	opts.setDefaults()
	try := func(ctx context.Context, where string, o Options) error {
		_, err := serve(ctx, fakefs.New(), where, nil, o)
		return err
	}
	ctx := context.Background()
	for where, want := range map[string]error{
		filepath.Join(dir, "none"): unix.ENOENT,
		file:                       unix.ENOTDIR,
		used:                       unix.EBUSY,
	} {
		if err := try(ctx, where, opts); !errors.Is(err, want) || strings.Count(err.Error(), where) != 1 {
			t.Errorf("%s: got %v, want %v", where, err, want)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := try(cancelled, dir, opts); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	opts.Transport = "pigeon"
	if err := try(ctx, dir, opts); !errors.Is(err, ErrNoTransport) {
		t.Errorf("pigeon: %v", err)
	}
	if err := m.Unmount(false); err != nil {
		t.Errorf("unmount: %v", err)
	}
	if !m.Ended() {
		t.Error("not ended by an unmount")
	}
	if err := m.Unmount(false); err != nil {
		t.Errorf("unmount again: %v", err)
	}
	fakefs.WaitDone(t, m.Done())
}

// TestPanic checks that a panic in a request is that request's error and a line in the log.
func TestPanic(t *testing.T) {
	_, dir, said := serveFake(t, fakefs.New())
	if fakefs.Stat(t, filepath.Join(dir, "panic")) == nil {
		t.Error("stat works")
	}
	if err := fakefs.Stat(t, filepath.Join(dir, "x")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if !strings.Contains(said.String(), "as asked") {
		t.Errorf("the log says %q", said)
	}
}
