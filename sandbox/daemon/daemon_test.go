package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
	"snapfs/sandbox/client"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/internal/workfiles"
)

func TestMain(m *testing.M) {
	treewalk.Child()
	workfiles.Child()
	os.Exit(m.Run())
}

// testVersion is what the daemons of the tests say they are.
const testVersion = "v1-of-tests"

// service is a client together with the daemon that it talks to.
type service struct {
	*client.Client
	cancel context.CancelFunc
	served chan error
}

// Close stops the daemon and waits for it.
func (s *service) Close() error {
	s.cancel()
	return errors.Join(<-s.served, s.Client.Close())
}

func start(t *testing.T, dir string, remount bool) *service {
	t.Helper()
	home, err := sandbox.Open(t.Context(), dir, sandbox.Options{Remount: remount})
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's context: that is cancelled before the clean-ups run.
	ctx, cancel := context.WithCancel(context.Background())
	s := &service{cancel: cancel, served: make(chan error, 1)}
	go func() { s.served <- daemon.Serve(ctx, daemon.Options{Dir: dir, Version: testVersion, Home: home}) }()
	for end := time.Now().Add(time.Minute); s.Client == nil; time.Sleep(time.Millisecond) {
		if s.Client, err = client.Dial(t.Context(), dir); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	return s
}

func TestDialNobody(t *testing.T) {
	dir := t.TempDir()
	if _, err := client.Dial(t.Context(), dir); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("no socket: got %v", err)
	}
	if _, err := client.Dial(t.Context(), filepath.Join(dir, "missing")); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("no home: got %v", err)
	}
}

func TestInfoAndStop(t *testing.T) {
	// Longer than a socket's address may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40), "home")
	s := start(t, dir, false)
	info, err := s.Info(t.Context())
	if err != nil || info.PID != os.Getpid() || info.Home != dir || info.Version != testVersion || info.Mounts != 0 {
		t.Errorf("info: %+v, %v", info, err)
	}
	fi, err := os.Stat(filepath.Join(dir, sandbox.SocketName))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", fi, err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	// The home is free as soon as Stop returns.
	h, err := sandbox.Open(t.Context(), dir, sandbox.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := <-s.served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, err := client.Dial(t.Context(), dir); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("dial after stop: got %v", err)
	}
	if _, err := s.Show(t.Context(), sandbox.RefRequest{Ref: "w"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("call after stop: got %v", err)
	}
}

func TestStaleSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	s := start(t, dir, false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// What a killed daemon leaves.
	if err := os.WriteFile(filepath.Join(dir, sandbox.SocketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Dial(t.Context(), dir); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("dial: got %v", err)
	}
	s = start(t, dir, false)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// interruptSnapshots takes snapshots and interrupts each after a time: what a call says must be what happened.
func interruptSnapshots(t *testing.T, s *service, rounds int, after func(round int) time.Duration) {
	t.Helper()
	ids := map[string]bool{}
	for i := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), after(i))
		got, err := s.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
		cancel()
		switch {
		case err == nil:
			ids[got.ID] = true
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("snapshot %d: got %v", i, err)
		}
		page, err := s.Snapshots(t.Context(), sandbox.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Snapshots) != len(ids) {
			t.Fatalf("snapshot %d: %d are told, %d are there", i, len(ids), len(page.Snapshots))
		}
	}
	t.Logf("%d of %d took effect", len(ids), rounds)
}

func TestInterruptedCallTellsWhatHappened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	s := start(t, dir, false)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	interruptSnapshots(t, s, 30, func(round int) time.Duration { return time.Duration(round) * 200 * time.Microsecond })
}
