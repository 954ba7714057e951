package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/holder"
	"snapfs/internal/userns"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/client"
)

// need says what a verb does if there is no home or no daemon.
type need int

const (
	existingHome need = iota // start a daemon, but do not create the home
	anyHome                  // start a daemon and create the home
)

// startTimeout bounds the time in which a daemon must open its home: a large store takes seconds after a crash.
const startTimeout = 2 * time.Minute

// readyFD is the descriptor on which a daemon in the background reports that it serves: the first of
// exec.Cmd.ExtraFiles.
const readyFD = 3

// ready is that report, one line of JSON.
type ready struct {
	PID   int    `json:"pid"`
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
}

// connect returns a connection to the daemon of the home, and starts the daemon if none runs. Callers must close it.
func (a *app) connect(ctx context.Context, n need) (*client.Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := a.checkHome(n); err != nil {
		return nil, err
	}
	begin := time.Now()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		c, err := a.dial(ctx)
		if err == nil {
			a.noteVersion(c)
			return c, nil
		}
		if !errors.Is(err, api.ErrUnavailable) || errors.Is(err, client.ErrStopped) || errors.Is(err, holder.ErrStopped) ||
			errors.As(err, new(*wire.VersionError)) {
			return nil, err
		}
		// Where somebody listens, a daemon is ending, or a service manager starts one: a second one would be in its way.
		held := !nobody(err)
		if !held {
			if err := a.mayStart(); err != nil {
				return nil, err
			}
			if err = a.startDaemon(ctx, n); err == nil {
				continue
			}
			// Another process holds the home: a daemon that is starting or ending, or a program that uses package sandbox.
			held = errors.Is(err, api.ErrConflict)
		}
		if errors.Is(err, errCannotStart) || errors.Is(err, errNotYet) || !held || time.Since(begin) > max(a.patience, heldTimeout) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// noteVersion says so if the daemon is of another version.
func (a *app) noteVersion(c *client.Client) {
	if v := c.DaemonVersion(); v != a.Version {
		a.note("the daemon is of version %s, this command of version %s; '%s' replaces the daemon", v, a.Version,
			a.hint("upgrade"))
	}
}

// nobody reports whether a call failed because no process listens on the socket.
func nobody(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) }

// heldTimeout bounds the wait for a process that holds the home but does not serve it.
const heldTimeout = 15 * time.Second

// checkHome refuses a home that cannot work, before anything is created.
func (a *app) checkHome(n need) error {
	info, err := os.Stat(a.home)
	switch {
	case errors.Is(err, fs.ErrNotExist) && n == anyHome:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return failure(api.ErrNotFound, "home %s does not exist", a.home)
	case errors.Is(err, fs.ErrPermission):
		return failure(api.ErrUnavailable, "home %s is not accessible to uid %d", a.home, os.Geteuid())
	case err != nil:
		return fmt.Errorf("home: %w", err)
	case !info.IsDir():
		return usagef("home %s is not a directory", a.home)
	}
	if err := unix.Access(a.home, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		if unix.Access(filepath.Join(a.home, api.SocketName), unix.W_OK) == nil {
			return nil // its daemon lets us in, and does the rest
		}
		if errors.Is(err, unix.EROFS) {
			return failure(api.ErrUnavailable, "home %s is on a read-only file system", a.home)
		}
		return failure(api.ErrUnavailable, "home %s belongs to %s; uid %d may not use it", a.home, owner(info),
			os.Geteuid())
	}
	return nil
}

// mayStart refuses to start a daemon in the home of another user, where it would leave files that the owner cannot use.
func (a *app) mayStart() error {
	info, err := os.Stat(a.home)
	if err != nil {
		return nil // the daemon creates it
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return failure(api.ErrUnavailable, "home %s belongs to %s and no daemon runs: start it as that user", a.home,
			owner(info))
	}
	return nil
}

func owner(info fs.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if st.Uid == unmapped && !userns.Initial() {
			return "a user outside of this user namespace"
		}
		return "uid " + strconv.FormatUint(uint64(st.Uid), 10)
	}
	return "another user"
}

// unmapped is how the kernel shows users who have no number in a user namespace.
const unmapped = 65534

// startDaemon runs `snapfs serve` in its own session. It returns when the daemon serves, or the error why it does not.
func (a *app) startDaemon(ctx context.Context, n need) error {
	program, err := a.enginePath()
	if err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	defer func() { _ = r.Close() }()
	args := []string{"serve", "--home", a.home, "--background"}
	if n == existingHome {
		args = append(args, "--must-exist")
	}
	if a.verbose {
		args = append(args, "--verbose")
	}
	cmd := exec.Command(program, args...) // not CommandContext: it outlives us
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	final, err := finalMessage()
	if err != nil {
		return errors.Join(fmt.Errorf("start the daemon: %w", err), w.Close())
	}
	defer func() { _ = final.Close() }()
	cmd.Stderr = final
	err = cmd.Start()
	_ = w.Close() // our copy
	if err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}

	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(unix.SIGTERM) })
	defer stop()
	if err := r.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		waitErr := cmd.Wait()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return failure(api.ErrUnavailable, "the daemon ended while starting (%v): %s", waitErr, firstLine(final))
	}
	var state ready
	if err := json.Unmarshal(line, &state); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	if state.Error != "" {
		_ = cmd.Wait() // its code is in the report
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return startError{state}
	}
	a.note("started daemon pid %d; stop it with '%s'", state.PID, a.hint("stop"))
	return cmd.Process.Release()
}

// finalMessage returns a file without a name for what a daemon prints before it has its log, such as a panic of the Go
// runtime.
func finalMessage() (*os.File, error) {
	fd, err := unix.MemfdCreate("snapfs-start", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "messages of the daemon"), nil
}

// firstLine is the first line in a file.
func firstLine(f *os.File) string {
	text, err := bufio.NewReader(io.NewSectionReader(f, 0, 4096)).ReadString('\n')
	if text = strings.TrimSpace(text); text == "" {
		return fmt.Sprintf("it said nothing (%v)", err)
	}
	return text
}

// startError is the error of a daemon that did not start, with the class that it reported.
type startError struct{ ready }

func (s startError) Error() string { return s.ready.Error }

// Is gives the error the class that the daemon reported.
func (s startError) Is(target error) bool {
	for _, c := range api.Classes() {
		if c.Err == target {
			return c.Exit != api.ExitFailed && c.Exit == s.Code
		}
	}
	return false
}

// hint formats a command for this home as a person would type it.
func (a *app) hint(verb string) string {
	if def := (&app{}); os.Getenv("SNAPFS_HOME") != "" || def.resolveHome() == nil && def.home == a.home {
		return "snapfs " + verb
	}
	return "snapfs --home " + shellWord(a.home) + " " + verb
}
