package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) runCommand() *cobra.Command {
	var from, name string
	var keep bool
	var options api.MountOptions
	cmd := &cobra.Command{
		Use:   "run [--from SRC] [--name NAME] [--keep] -- CMD...",
		Short: "run a command in a throw-away workspace and show what it changed",
		Long: `Creates a workspace from SRC (as in 'snapfs create'), mounts it at a temporary directory and runs
CMD there. When CMD has ended, prints what it changed, as 'snapfs diff' does. Then the workspace is
destroyed; with --keep it is unmounted and kept. SRC itself is never changed.

CMD inherits the standard streams of snapfs. With --json, its standard output goes to standard
error, and standard output gets one document with the workspace, the exit code and the changes. With
--quiet, the changes are not printed.

Signals are forwarded to CMD. The workspace is cleaned up in any case. If CMD leaves a process
behind that still uses the workspace, the workspace stays, and standard error names the process and
what to do.

The exit code is that of CMD (126: cannot be run, 127: not found, 128+N: ended by signal N). If CMD
ended with 0 but the clean-up failed, it is that of the clean-up.`,
		Example: `  snapfs run --from . -- make test
  snapfs run --from base --keep --name try -- npm install left-pad`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("missing CMD")
			}
			return nil
		},
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := source(cmd, from)
			if err != nil {
				return err
			}
			if name == "" {
				name = fmt.Sprintf("run-%08x", rand.Uint32())
			}
			return a.withClient(cmd.Context(), anyHome, func(c *client.Client) error {
				if err := a.onlyOne(cmd.Context(), c, from, src); err != nil {
					return err
				}
				return a.runIn(cmd.Context(), c,
					throwAway{app: a, client: c, name: name, src: src, keep: keep, options: options, argv: args})
			})
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // arguments after CMD belong to CMD
	f.StringVar(&from, "from", "", "`SRC` of the workspace: directory, image file or snapshot (default: empty)")
	f.StringVar(&name, "name", "", "`NAME` of the workspace (default: generated)")
	f.BoolVar(&keep, "keep", false, "keep the workspace after CMD has ended")
	trustFlags(cmd, &options)
	return cmd
}

// throwAway is one run of a command in a temporary workspace.
type throwAway struct {
	app    *app
	client api.API
	name   string
	src    string
	keep   bool
	argv   []string

	options api.MountOptions
}

// ran is what a run prints with --json.
type ran struct {
	Workspace string       `json:"workspace"`
	Kept      bool         `json:"kept"`
	ExitCode  int          `json:"exit_code"`
	Changes   []api.Change `json:"changes"`
}

func (a *app) runIn(ctx context.Context, c *client.Client, t throwAway) error {
	// The daemon makes it, and removes it with the mount, however this process ends.
	dir, err := absolute("mountpoint", filepath.Join(os.TempDir(), fmt.Sprintf("snapfs-run-%08x", rand.Uint32())))
	if err != nil {
		return err
	}
	meter := a.newMeter()
	_, err = c.Create(ctx, api.CreateRequest{Access: a.access(), Name: t.name, Source: t.src, Progress: meter.report()})
	meter.done()
	if err != nil {
		return err
	}
	mount := api.MountRequest{Access: a.access(), Workspace: t.name, Mountpoint: dir, MakeMountpoint: true, MountOptions: t.options}
	if _, err := a.mount(ctx, c, mount); err != nil {
		return errors.Join(err, a.destroyNew(ctx, c, t.name))
	}

	result := ran{Workspace: t.name, Kept: t.keep, Changes: []api.Change{}}
	runErr := a.runCommandIn(ctx, dir, t.argv)
	result.ExitCode = exitCode(runErr)

	// From here on signals are ignored: what was created must be removed.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	diffErr := c.Diff(after, api.DiffRequest{Access: a.access(), A: t.name}, func(ch api.Change) error {
		result.Changes = append(result.Changes, ch)
		return nil
	})
	cleanErr := t.clean(after, dir)
	if cleanErr != nil {
		result.Kept = true
	}
	printErr := a.result(result, func(w io.Writer) error {
		for _, ch := range result.Changes {
			if a.quiet {
				break
			}
			if err := printChange(w, ch); err != nil {
				return err
			}
		}
		return nil
	})
	if runErr != nil {
		// The exit code is that of CMD. Other errors are only printed.
		if err := errors.Join(diffErr, cleanErr, printErr); err != nil {
			a.printError(err)
		}
		return runErr
	}
	return errors.Join(diffErr, cleanErr, printErr)
}

// clean unmounts the workspace, and destroys it unless it is kept.
func (t throwAway) clean(ctx context.Context, dir string) error {
	a := t.app
	var err error
	for try := 0; try < 20; try++ { // processes that CMD started may need a moment to end
		_, err = t.client.Unmount(ctx, api.UnmountRequest{Access: a.access(), Workspace: t.name})
		if !errors.Is(err, api.ErrConflict) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if errors.Is(err, api.ErrConflict) {
		return failure(api.ErrConflict, "conflict: workspace %s is still used at %s by %s; end them, then '%s', "+
			"or '%s' does both", t.name, quote(dir), users(dir), a.hint("down --destroy "+t.name),
			a.hint("down --destroy --force "+t.name))
	}
	if err != nil {
		return fmt.Errorf("workspace %s is left at %s: %w", t.name, quote(dir), err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if t.keep {
		a.note("kept workspace %s; see '%s'", t.name, a.hint("show "+t.name))
		return nil
	}
	return a.destroyNew(ctx, t.client, t.name)
}

// grace is how long CMD may take to end after a signal was forwarded to it.
const grace = 10 * time.Second

// runCommandIn runs argv in dir. It returns a non-zero exit code as a codeError.
func (a *app) runCommandIn(ctx context.Context, dir string, argv []string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PWD="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.out, a.err
	if a.json {
		cmd.Stdout = a.err
	}
	cmd.Cancel = func() error {
		sig := unix.SIGTERM
		var cause interrupted
		if errors.As(context.Cause(ctx), &cause) {
			sig = cause.signal
		}
		if f, ok := a.in.(*os.File); ok && sig == unix.SIGINT && term.IsTerminal(int(f.Fd())) {
			return nil // the terminal sent it to CMD too
		}
		return cmd.Process.Signal(sig)
	}
	cmd.WaitDelay = grace
	err := cmd.Run()
	if cmd.ProcessState == nil {
		code := 126
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = 127
		}
		return codeError{fmt.Errorf("run %s: %w", quote(argv[0]), err), code}
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Exited() && status.ExitStatus() == 0 {
		return nil
	}
	return codeError{errSilent, waitCode(unix.WaitStatus(status))}
}

// errSilent is an error without text: CMD has printed its own message.
var errSilent = errors.New("")
