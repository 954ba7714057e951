package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"snapfs/sandbox/api"
)

const (
	// engineVariable names the container engine where no flag does.
	engineVariable = "SNAPFS_CONTAINER_ENGINE"
	// workspaceDir is where a container has the workspace.
	workspaceDir = "/workspace"
	// containerWait is how long the command of a container has to end after a signal, before the container is removed: as the
	// first process it may not get the signal at all. Engines stop containers so, too.
	containerWait = 10 * time.Second
	// engineWait bounds a question to the engine.
	engineWait = 30 * time.Second
	// notStarted is the exit code of engines that could not start a container.
	notStarted = 125
)

// containerRun is the container in which the command of a run is.
type containerRun struct {
	image  string
	engine string   // a program: docker or podman, or one that takes their words
	args   []string // further options of the engine's run
}

// check refuses what goes with no container.
func (c *containerRun) check(sandbox bool) error {
	switch {
	case c.image == "" && (c.engine != "" || len(c.args) > 0):
		return usagef("--engine-cmd and --container-arg are for --container")
	case c.image != "" && sandbox:
		return usagef("--container and --sandbox at a time: a container sees nothing of the home directory anyway")
	case strings.HasPrefix(c.image, "-"):
		return usagef("--container %q: the name of an image is needed", c.image)
	}
	return nil
}

// find finds the engine.
func (c *containerRun) find() error {
	if c.engine == "" {
		c.engine = os.Getenv(engineVariable)
	}
	if c.engine == "" {
		for _, name := range []string{"podman", "docker"} {
			if _, err := exec.LookPath(name); err == nil {
				c.engine = name
				return nil
			}
		}
		return failure(api.ErrUnavailable, "unavailable: no container engine: neither podman nor docker is in PATH; install one of them "+
			"(Debian: 'apt install podman' or 'apt install docker.io'), or name its program with --engine-cmd")
	}
	if _, err := exec.LookPath(c.engine); err != nil {
		return failure(api.ErrUnavailable, "unavailable: the container engine %s cannot be run: %v; install it, or name another one "+
			"with --engine-cmd", quote(c.engine), err)
	}
	return nil
}

// run runs a command in a new container, with the workspace that is mounted at dir. It gives how the command ended, as
// runCommandIn does, and an error if the container may still be there.
func (c *containerRun) run(ctx context.Context, a *app, workspace, dir string, argv []string) (ended, left error) {
	if strings.ContainsAny(dir, ",\"\n") {
		return usagef("the engine does not take the path %s: TMPDIR names another place", quote(dir)), nil
	}
	if err := c.sees(dir); err != nil {
		return err, nil
	}
	tmp, err := os.MkdirTemp("", "snapfs-container-")
	if err != nil {
		return err, nil
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a file with an id
	name, idFile := fmt.Sprintf("snapfs-%08x", rand.Uint32()), filepath.Join(tmp, "id")
	line := []string{
		c.engine, "run", "--rm", "--interactive", "--name", name, "--cidfile", idFile, "--label", "snapfs.workspace=" + workspace,
		"--mount", "type=bind,source=" + dir + ",target=" + workspaceDir, "--workdir", workspaceDir,
	}
	if isTerminal(a.in) && isTerminal(a.out) && !a.json {
		line = append(line, "--tty")
	}
	line = append(append(line, c.args...), c.image)
	wd, err := os.Getwd()
	if err != nil {
		wd = "/"
	}
	which := func() string { // its id, once it is made
		if id, err := os.ReadFile(idFile); err == nil && len(id) > 0 {
			return "id=" + strings.TrimSpace(string(id))
		}
		return "name=" + name
	}
	done := make(chan struct{})
	killed := c.killLate(done, which)
	ended = a.runCommandIn(ctx, inside{Dir: wd}, nil, append(line, argv...))
	close(done)
	<-killed
	made := strings.HasPrefix(which(), "id=")
	if err := c.remove(which()); err != nil {
		left = fmt.Errorf("container %s may still run and use workspace %s: %w; when the engine answers, '%s rm -f %s' removes it",
			name, workspace, err, c.engine, name)
	}
	var code codeError
	if errors.As(ended, &code) && code.code == notStarted && !made {
		ended = codeError{fmt.Errorf("%s has started no container of image %s", c.engine, quote(c.image)), notStarted}
	}
	return ended, left
}

// sees is an error if rootless Podman does not see what is mounted at dir: it would give the container an empty directory.
// Its namespace gets the mounts that are made after it only if the machine shares mounts.
func (c *containerRun) sees(dir string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	mounts, err := c.ask("unshare", "cat", "/proc/self/mountinfo")
	if err != nil {
		return nil // another engine, which has no such word
	}
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) > 4 && f[4] == strings.ReplaceAll(at, " ", `\040`) {
			return nil
		}
	}
	return failure(api.ErrUnavailable, "unavailable: %s does not see the workspace, which is mounted at %s: its mount namespace gets no new "+
		"mounts; end the daemon ('snapfs stop') and run '%s unshare snapfs run ...', or have root share mounts ('mount --make-rshared /') "+
		"and then run '%s system migrate'", c.engine, quote(dir), c.engine, c.engine)
}

// killLate kills the container some time after a signal, at once after a second one, until done is closed. Then it
// closes what it gives.
func (c *containerRun) killLate(done <-chan struct{}, which func() string) <-chan struct{} {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	if !signal.Ignored(unix.SIGHUP) {
		signal.Notify(signals, unix.SIGHUP)
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		defer signal.Stop(signals)
		select {
		case <-signals:
		case <-done:
			return
		}
		late := time.NewTimer(containerWait)
		defer late.Stop()
		select {
		case <-signals:
		case <-late.C:
		case <-done:
			return
		}
		for { // the engine may not know yet that it runs
			for _, id := range c.containers(which()) {
				_, _ = c.ask("kill", "--signal", "KILL", id) // what is left is found afterwards
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-done:
				return
			}
		}
	}()
	return finished
}

// remove removes the container that a filter chooses, if it is there.
func (c *containerRun) remove(filter string) error {
	for try := 0; ; try++ {
		out, err := c.ask("ps", "--all", "--quiet", "--no-trunc", "--filter", filter)
		if err != nil {
			return err
		}
		ids := strings.Fields(out)
		if len(ids) == 0 {
			return nil
		}
		_, _ = c.ask("kill", "--signal", "KILL", ids[0]) // it may have ended
		_, err = c.ask("rm", "--force", ids[0])          // the engine may be at it already
		if err != nil && try == 20 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// containers are the ids of the containers that run and that a filter chooses; none if the engine does not answer.
func (c *containerRun) containers(filter string) []string {
	out, _ := c.ask("ps", "--quiet", "--no-trunc", "--filter", filter)
	return strings.Fields(out)
}

// ask runs a command of the engine for this process alone: keys of the terminal do not end it.
func (c *containerRun) ask(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.engine, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	var out, errText bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errText
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", c.engine, args[0], errors.Join(ctx.Err(), err), plain(strings.TrimSpace(errText.String())))
	}
	return out.String(), nil
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
