package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/client"
)

// served is a daemon that this program started, and a connection to it: what is measured is the API as the command line uses it,
// without the start of a process.
type served struct {
	cmd     *exec.Cmd
	api     *client.Client
	metrics string // address
	home    string
}

// serveHome builds the daemon, once for each scratch directory, and starts it on a new home.
func serveHome(ctx context.Context, e *env, home string) (*served, error) {
	binary := filepath.Join(e.work, "snapfs")
	if _, err := os.Stat(binary); err != nil {
		if err := buildSnapfs(ctx, binary); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free now
	if err != nil {
		return nil, err
	}
	s := &served{metrics: l.Addr().String(), home: home}
	if err := l.Close(); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), binary, "--home", home, "serve", "--metrics", s.metrics, "--idle-after", "0")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for this program, which then ends the daemon
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	for try := 0; ; try++ {
		if s.api, err = client.Dial(ctx, home); err == nil {
			return s, nil
		}
		if try == 500 || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err(), s.stop())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// buildSnapfs builds the complete command from the sources beside this module: this module does not have what only the command needs.
func buildSnapfs(ctx context.Context, binary string) error {
	dir, err := tool{}.output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "snapfs")
	if err != nil {
		return err
	}
	return tool{dir: strings.TrimSpace(string(dir))}.run(ctx, "go", "build", "-o", binary, "./cmd/snapfs")
}

// stop ends the daemon, which unmounts everything.
func (s *served) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	return errors.Join(err, s.cmd.Wait())
}

// held reads the sum of all pauses from the daemon's metrics.
func (s *served) held(ctx context.Context) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "snapfs_held_seconds_sum "); ok {
			sec, err := strconv.ParseFloat(v, 64)
			return time.Duration(sec * float64(time.Second)), err
		}
	}
	return 0, errors.New("the daemon does not tell for how long it held changes back")
}

// memory is the resident memory of the daemon, in bytes.
func (s *served) memory() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// snapfsHolder is a mounted workspace of a daemon.
type snapfsHolder struct {
	*served
	scratch string
	made    map[string]string // workspaces by the directories they are mounted at
}

func openSnapfsHolder(ctx context.Context, e *env, tree, scratch string) (holder, error) {
	s, err := serveHome(ctx, e, filepath.Join(scratch, "home"))
	if err != nil {
		return nil, err
	}
	h := &snapfsHolder{s, scratch, map[string]string{}}
	if _, err := s.api.Create(ctx, sandbox.CreateRequest{Name: "w", Source: tree}); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if _, err := s.api.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.dir(), MakeMountpoint: true}); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return h, nil
}

func (h *snapfsHolder) dir() string { return filepath.Join(h.scratch, "mnt") }

func (h *snapfsHolder) snapshot(ctx context.Context, sync bool) (string, error) {
	s, err := h.api.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", NoSync: !sync})
	return s.ID, err
}

func (h *snapfsHolder) restore(ctx context.Context, id string) (string, error) {
	dir := filepath.Join(h.scratch, "restored")
	w, err := h.api.Restore(ctx, sandbox.RestoreRequest{Snapshot: id, Mountpoint: dir, MakeMountpoint: true})
	if err != nil {
		return "", err
	}
	h.made[dir] = w.ID
	return dir, nil
}

func (h *snapfsHolder) unrestore(ctx context.Context, dir string) error {
	if _, err := h.api.Unmount(ctx, sandbox.UnmountRequest{Workspace: h.made[dir], Force: true}); err != nil {
		return err
	}
	return h.api.Destroy(ctx, sandbox.RefRequest{Ref: h.made[dir]})
}

func (h *snapfsHolder) rollback(ctx context.Context, id string) error {
	_, err := h.api.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: id})
	return err
}

func (h *snapfsHolder) diff(ctx context.Context, id string) error {
	return h.api.Diff(ctx, sandbox.DiffRequest{A: id, B: "w"}, func(sandbox.Change) error { return nil })
}

func (h *snapfsHolder) delete(ctx context.Context, id string) error {
	return h.api.Delete(ctx, sandbox.RefRequest{Ref: id})
}

func (h *snapfsHolder) close(context.Context) error { return h.stop() }
