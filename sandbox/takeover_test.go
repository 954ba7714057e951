package sandbox

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// succession is a home that one Home after another opens, all with one keeper.
type succession struct {
	t      *testing.T
	ctx    context.Context
	work   string
	keeper *fakeKeeper
	home   *Home
}

func newSuccession(t *testing.T) *succession {
	t.Helper()
	work, err := os.MkdirTemp("", "snapfs-succession-") // not t.TempDir: the mounts go first
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	s := &succession{t: t, ctx: ctx, work: work, keeper: newFakeKeeper(t)}
	t.Cleanup(func() {
		defer cancel()
		if s.home != nil {
			if err := s.home.Close(); err != nil {
				t.Error(err)
			}
			if len(s.keeper.kept) > 0 {
				t.Errorf("still kept: %v", s.keeper.kept)
			}
		}
		if err := os.RemoveAll(work); err != nil {
			t.Error(err)
		}
	})
	s.open(Options{})
	return s
}

func (s *succession) open(o Options) {
	s.t.Helper()
	o.Keeper, o.KeepMounts, o.Transport, o.OwnMountpoints = s.keeper, true, "dev", true
	h, err := Open(s.ctx, filepath.Join(s.work, "home"), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.home = h
}

// next hands the mounts over to another Home.
func (s *succession) next(o Options) {
	s.t.Helper()
	s.home.KeepMounts()
	err := s.home.Close()
	s.home = nil
	if err != nil {
		s.t.Fatal(err)
	}
	s.open(o)
}

// sh runs a script in the directory of the mounts.
func (s *succession) sh(script string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, "sh", "-ec", script)
	cmd.Dir = s.work
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *succession) mount(name string, o MountOptions) {
	s.t.Helper()
	if _, err := s.home.Create(s.ctx, CreateRequest{Name: name}); err != nil {
		s.t.Fatal(err)
	}
	r := MountRequest{Workspace: name, Mountpoint: filepath.Join(s.work, name), MakeMountpoint: true, MountOptions: o}
	if _, err := s.home.Mount(s.ctx, r); err != nil {
		s.t.Fatal(err)
	}
}

func (s *succession) state(name string) WorkspaceState {
	s.t.Helper()
	o, err := s.home.Show(s.ctx, RefRequest{Ref: name})
	if err != nil {
		s.t.Fatal(err)
	}
	return o.Workspace.State
}

// TestHandOver: programs that have files open in a mount see nothing of a change of the process that serves it.
func TestHandOver(t *testing.T) {
	s := newSuccession(t)
	s.mount("w", MountOptions{})
	s.sh(`mkdir w/d; seq 100000 > w/d/a; echo b > w/d/b`)
	x := hold(t, filepath.Join(s.work, "w/d"))
	before := x.look()
	s.sh(`rm w/d/b; mv w/d/a w/d/c`)
	for range 3 {
		s.next(Options{})
		if state := s.state("w"); state != Mounted {
			t.Fatalf("the workspace is %s", state)
		}
		if after := x.look(); !maps.Equal(before, after) {
			t.Errorf("the program saw %v, now %v", before, after)
		}
		s.sh(`echo more >> w/d/log; test "$(ls w/d)" = "$(printf 'c\nlog')"; seq 100000 | cmp - w/d/c`)
		if _, err := s.home.Snapshot(s.ctx, SnapshotRequest{Workspace: "w"}); err != nil {
			t.Fatal(err)
		}
		if after := x.look(); !maps.Equal(before, after) {
			t.Errorf("after a snapshot the program saw %v, now %v", before, after)
		}
	}
	x.end()
	if _, err := s.home.Unmount(s.ctx, UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	s.next(Options{Remount: true})
	if state := s.state("w"); state != Unmounted {
		t.Errorf("the workspace is %s", state)
	}
}

// TestForcedEnd: what programs have open without a name when their mount is ended is not kept for a successor.
func TestForcedEnd(t *testing.T) {
	s := newSuccession(t)
	s.mount("w", MountOptions{})
	s.sh(`mkdir w/d; echo text > w/d/a`)
	x := hold(t, filepath.Join(s.work, "w/d"))
	s.sh(`rm w/d/a`)
	kept := func(want string) {
		t.Helper()
		if got := s.sh(`find home -path '*/#orphans/*' | wc -l`); got != want {
			t.Errorf("%s files are kept, want %s", got, want)
		}
	}
	kept("1")
	if _, err := s.home.Unmount(s.ctx, UnmountRequest{Workspace: "w", Force: true}); err != nil {
		t.Fatal(err)
	}
	kept("0")
	x.end()
}

// TestHandOverPaused: a paused workspace stays paused, and one that was renamed has its name.
func TestHandOverPaused(t *testing.T) {
	s := newSuccession(t)
	s.mount("w", MountOptions{NoSUID: true})
	s.sh(`echo one > w/f`)
	if _, err := s.home.Pause(s.ctx, PauseRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.home.Rename(s.ctx, RenameRequest{Ref: "w", Name: "v"}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(s.ctx, "sh", "-ec", `echo two >> w/f`)
	cmd.Dir = s.work
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 2 {
		s.next(Options{})
		o, err := s.home.Show(s.ctx, RefRequest{Ref: "v"})
		if err != nil || !o.Workspace.Paused || o.Workspace.State != Mounted {
			t.Fatalf("%+v, %v", o.Workspace, err)
		}
		select {
		case err := <-ended:
			t.Fatal("a program went on in a paused workspace:", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if _, err := s.home.Resume(s.ctx, RefRequest{Ref: "v"}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := s.sh(`cat w/f; grep -c "$PWD/w .*nosuid" /proc/mounts`); got != "one\ntwo\n1" {
		t.Errorf("got %q", got)
	}
}

// TestTakeOverStale: what is kept and is not what is recorded ends, and what is recorded is mounted again.
func TestTakeOverStale(t *testing.T) {
	for name, spoil := range map[string]func(k *Kept){
		"another home": func(k *Kept) { k.Data = []byte(strings.Replace(string(k.Data), `"home":"`, `"home":"x`, 1)) },
		"no JSON":      func(k *Kept) { k.Data = []byte("{") },
		"another tree": func(k *Kept) { k.Data = []byte(strings.Replace(string(k.Data), `"upper":`, `"upper":9`, 1)) },
		"moving":       func(k *Kept) { k.Data = []byte(strings.Replace(string(k.Data), `{`, `{"moving":true,`, 1)) },
		"no state":     func(k *Kept) { _ = k.Files[1].Close(); k.Files = k.Files[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSuccession(t)
			s.mount("w", MountOptions{})
			s.sh(`echo one > w/f`)
			s.home.KeepMounts()
			if err := s.home.Close(); err != nil {
				t.Fatal(err)
			}
			for name, k := range s.keeper.kept {
				if strings.HasPrefix(name, keptPrefix) {
					spoil(&k)
					s.keeper.kept[name] = k
				}
			}
			s.open(Options{Remount: true})
			if got := s.sh(`cat w/f; grep -c "$PWD/w " /proc/mounts`); got != "one\n1" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestTakeOverLater: what fails and may not fail again ends no mount. Only when process after process has failed does it.
func TestTakeOverLater(t *testing.T) {
	s := newSuccession(t)
	s.mount("w", MountOptions{})
	s.sh(`echo one > w/f`)
	x := hold(t, filepath.Join(s.work, "w"))
	before := x.look()
	leave := func() {
		t.Helper()
		s.home.KeepMounts()
		err := s.home.Close()
		s.home = nil
		if err != nil {
			t.Fatal(err)
		}
	}
	// change puts another state in the place of the one that is kept.
	change := func(with func(*os.File) *os.File) {
		for name, k := range s.keeper.kept {
			if strings.HasPrefix(name, keptPrefix) {
				k.Files[1] = with(k.Files[1])
			}
		}
	}
	var state *os.File
	spoil := func(f *os.File) *os.File {
		readOnly, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
		if err != nil {
			t.Fatal(err)
		}
		state = f
		return readOnly
	}
	leave()
	change(spoil)
	o := Options{Keeper: s.keeper, KeepMounts: true, Transport: "dev", OwnMountpoints: true}
	for range mostTries {
		h, err := Open(s.ctx, filepath.Join(s.work, "home"), o)
		if err == nil {
			s.home = h
			t.Fatal("opened")
		}
		o.Deaths = append(o.Deaths, Death{PID: 7, Reason: "exit status 1"})
	}
	change(func(f *os.File) *os.File { _ = f.Close(); return state })
	s.open(o)
	if after := x.look(); !maps.Equal(before, after) {
		t.Errorf("the program saw %v, now %v", before, after)
	}
	x.end()
	leave()
	change(spoil)
	s.open(o)
	_ = state.Close()
	if state := s.state("w"); state == Mounted {
		t.Errorf("the workspace is %s", state)
	}
}

// TestCrashEvents: the deaths of earlier processes are in the logs of the workspaces that were mounted.
func TestCrashEvents(t *testing.T) {
	s := newSuccession(t)
	s.mount("w", MountOptions{})
	if _, err := s.home.Create(s.ctx, CreateRequest{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.next(Options{
		Deaths:  []Death{{Time: at, PID: 7, Reason: "killed by SIGKILL"}},
		LastLog: []string{"earlier", "panic: one", strings.Repeat("long ", 1000)},
	})
	for range 2 { // by one that died right afterwards, and by this one
		s.home.RecordDeaths(s.ctx)
	}
	var got []Event
	err := s.home.Events(s.ctx, EventsRequest{}, func(e Event) error {
		if e.Kind == EventDaemonCrashed {
			got = append(got, e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "daemon 7: killed by SIGKILL; its mount went on; last log lines: panic: one | long long"
	if len(got) != 1 || got[0].Workspace != "w" || got[0].Level != "warn" || !got[0].At.Equal(at) ||
		!strings.HasPrefix(got[0].Detail, want) || len(got[0].Detail) > crashText {
		t.Errorf("events %+v", got)
	}
	counted := map[string]float64{}
	families, err := s.home.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				counted[l.GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if counted[string(EventDaemonCrashed)] != 1 {
		t.Errorf("metrics %v", counted)
	}
}
