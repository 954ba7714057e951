package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) runCommand() *cobra.Command {
	var from, wait string
	var empty, apply, keep, discard bool
	t := throwAway{app: a}
	cmd := &cobra.Command{
		Use:   "run [--from SRC] [--name NAME] [--apply | --keep | --discard] [--sandbox | --container IMAGE] -- CMD...",
		Short: "run a command in a throw-away workspace and show what it changed",
		Long: `Creates a workspace from SRC (as in 'snapfs create'; by default the present directory), and runs CMD in
it. When CMD has ended, prints what it changed, as 'snapfs diff' does, and asks whether to apply that
to SRC, to keep the workspace or to discard it. If it is discarded, what CMD changed is kept as a
snapshot without a name, which expires after 7 days; standard error says how to get it back. With
--discard it is lost.

The question is asked on the terminal, also if some of the standard streams are redirected. If all of
them are, or with --json, nothing is asked, and the workspace is discarded. It is kept if snapfs has
received SIGHUP or SIGTERM, if nobody answers, and if what was changed cannot be listed.

To apply is to merge, as 'snapfs apply' does: what was changed in SRC meanwhile stays. If both changed
something in different ways, SRC stays as it is, the workspace is kept, and the conflicts are printed.
'snapfs apply --undo SRC' takes it back. Only a directory can be applied to.

If SRC is a directory, CMD sees the workspace at the path of SRC, in a mount namespace of its own, so
that absolute paths in the tree lead into the workspace. It starts in the present directory if that
is in SRC, else in SRC. Other programs see SRC there. What CMD changes elsewhere is changed. What is
mounted inside SRC is not in the workspace, and shown read-only. / and the home directory are refused,
and so is a directory in a workspace: 'snapfs fork' that, and work in the fork.

Where no mount namespace can be made, and for other sources, CMD runs at a temporary directory; the
former is told. Without root, CMD is in a user namespace: it sees files of others as those of nobody,
and setuid programs have no effect.

With --sandbox, CMD sees nothing of the home directory but the workspace, and, read-only, the
directories of PATH and of --show that are in it. The home directory is what HOME names, and what the
system has as that of the user. Homes of snapfs, and workspaces of other runs, are hidden. The rest of
the system is read-only except /tmp, /dev and /proc. CMD inherits no descriptors but the standard
streams. This guards against accidents, not against programs that want to get out: network, processes
and sockets are as they are, so that CMD can ask services such as docker, tmux or the session bus to
do what it cannot; and root can undo all of it.

With --container, CMD runs in a new container of IMAGE, which has the workspace at /workspace, as its
working directory; without CMD, the command of the image. The container engine is podman, else
docker, or what --engine-cmd or SNAPFS_CONTAINER_ENGINE names, and takes options of its 'run' by
--container-arg. It has a terminal if snapfs has. The container is removed when CMD has ended; if CMD
does not end 10 seconds after SIGINT, SIGTERM or SIGHUP, or there is a second one, it is killed. A
workspace that is kept gets a snapshot. If the container engine does not answer at the end, the
workspace is kept. The exit code is 125 if it cannot start the container. --engine is another thing:
what shows the workspace.

CMD inherits the standard streams of snapfs. With --json, its standard output goes to standard
error, and standard output gets one document: the workspace, the exit code, the changes, and the
snapshot of what was discarded. With --quiet, the changes are not printed.

Signals are forwarded to CMD, and mean what they mean to CMD; so do the keys of the terminal. The
workspace is cleaned up when CMD has ended. If CMD leaves a process behind that still uses it, it
stays, and standard error names the process and what to do. If snapfs is killed (SIGKILL), CMD gets
SIGTERM, unless it runs with other rights, and the workspace stays mounted: 'snapfs list' shows it,
and 'snapfs down' with its name unmounts it, for 'snapfs apply' or 'snapfs destroy'.

The exit code is that of CMD (126: cannot be run, 127: not found, 128+N: ended by signal N). If CMD
ended with 0 but the clean-up failed, it is that of the clean-up.`,
		Example: `  snapfs run --from . -- make test
  snapfs run --from . --sandbox --apply -- make test
  snapfs run --from base --keep --name try -- npm install left-pad
  snapfs run --container node:22 --container-arg --network=none -- npm test`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && t.container.image == "":
				return usagef("missing CMD")
			case apply && keep || apply && discard || keep && discard:
				return usagef("--apply, --keep and --discard exclude each other")
			case empty && from != "":
				return usagef("--empty and --from at a time")
			case len(t.show) > 0 && !t.sandbox:
				return usagef("--show is for --sandbox")
			}
			if err := checkEngine(t.options.Engine); err != nil {
				return usagef("%w; --engine-cmd names a container engine", err)
			}
			return t.container.check(t.sandbox)
		},
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !empty && !cmd.Flags().Changed("from") {
				from = "."
			}
			src, err := source(cmd, from)
			if err != nil {
				return err
			}
			if t.imported, err = waitImported(wait); err != nil {
				return err
			}
			if t.name == "" {
				t.name = fmt.Sprintf("run-%08x", rand.Uint32())
			}
			t.src, t.argv, t.end = src, args, ending{ask: true}
			if apply || keep || discard {
				t.end = ending{apply: apply, keep: keep, now: discard}
			}
			if t.container.image != "" {
				if err := t.container.find(); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), anyHome, func(c *client.Client) error {
				if err := a.onlyOne(cmd.Context(), c, from, src); err != nil {
					return err
				}
				t.client = c
				return a.runIn(cmd.Context(), c, t)
			})
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // arguments after CMD belong to CMD
	f.StringVar(&from, "from", "", "`SRC` of the workspace: directory, image file, container image or snapshot (default: the present directory)")
	platformFlag(cmd, &t.platform)
	f.BoolVar(&empty, "empty", false, "begin with an empty workspace")
	waitFlag(cmd, &wait)
	f.StringVar(&t.name, "name", "", "`NAME` of the workspace (default: generated)")
	f.BoolVar(&apply, "apply", false, "apply what CMD changed to SRC, and do not ask")
	f.BoolVar(&keep, "keep", false, "keep the workspace after CMD has ended, and do not ask")
	f.BoolVar(&discard, "discard", false, "destroy the workspace after CMD has ended, keep nothing of it, and do not ask")
	f.BoolVar(&t.sandbox, "sandbox", false, "hide the home directory, and make the system read-only, against accidents")
	f.StringArrayVar(&t.show, "show", nil, "with --sandbox, show `DIR` of the home directory, read-only; may be given several times")
	f.StringVar(&t.container.image, "container", "", "run CMD in a container of `IMAGE`, with the workspace at "+workspaceDir)
	f.StringVar(&t.container.engine, "engine-cmd", "",
		"with --container, the `PROGRAM` of the container engine, such as docker or podman (environment: "+engineVariable+")")
	f.StringArrayVar(&t.container.args, "container-arg", nil, "with --container, an `OPTION` of the container engine's run; may be given several times")
	engineFlag(cmd, &t.options.Engine)
	quotaFlags(cmd, &t.quota)
	trustFlags(cmd, &t.options)
	return cmd
}

// throwAway is one run of a command in a temporary workspace.
type throwAway struct {
	app      *app
	client   *client.Client
	name     string
	src      string
	platform string
	dir      string // the directory that it is made from, if it is one
	end      ending
	argv     []string

	imported bool // it is imported first
	quota    api.Quota

	sandbox bool
	show    []string // in the sandbox

	container containerRun
	options   api.MountOptions
}

// ending says what becomes of the workspace of a run: if nothing is set, it is destroyed so that it can be brought back.
type ending struct {
	apply bool // to the directory that it is made from
	keep  bool
	now   bool // it is destroyed for good
	ask   bool // if there is a terminal
}

// ran is what a run prints with --json.
type ran struct {
	Workspace string       `json:"workspace"`
	Applied   bool         `json:"applied"`
	Kept      bool         `json:"kept"`
	ExitCode  int          `json:"exit_code"`
	Changes   []api.Change `json:"changes"`

	Snapshot  string              `json:"snapshot,omitempty"`  // has what was discarded, or, after a container, what was kept
	Conflicts []api.ApplyConflict `json:"conflicts,omitempty"` // because of which it was not applied
}

// throwAwayDir names a directory for a mount. The daemon makes it, and removes it with the mount, however this process
// ends.
func throwAwayDir() (string, error) {
	tmp := os.TempDir()
	if err := unix.Access(tmp, unix.W_OK|unix.X_OK); err != nil {
		return "", fmt.Errorf("a directory for the mount in %s: %w: TMPDIR names another place for it", plain(tmp), err)
	}
	return absolute("mountpoint", filepath.Join(tmp, fmt.Sprintf("%s%08x", runPrefix, rand.Uint32())))
}

func (a *app) runIn(ctx context.Context, c *client.Client, t throwAway) error {
	dir, err := throwAwayDir()
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(t.src); t.src != "" && err == nil {
		if fi, err := os.Stat(real); err == nil && fi.IsDir() {
			t.dir = real
		}
	}
	if t.dir == "" && t.end.apply {
		return usagef("--apply needs a directory as --from")
	}
	var see inside
	var attr *syscall.SysProcAttr
	if t.container.image == "" {
		if see, attr, err = t.inside(dir); err != nil {
			return err
		}
	}
	meter := a.newMeter()
	_, err = c.Create(ctx, api.CreateRequest{
		Access: a.access(), Quota: t.quota, Name: t.name, Source: t.src, Platform: t.platform, WaitImported: t.imported,
		Progress: meter.report(),
	})
	meter.done()
	if err != nil {
		return err
	}
	mount := api.MountRequest{Access: a.access(), Workspace: t.name, Mountpoint: dir, MakeMountpoint: true, MountOptions: t.options}
	if _, err := a.mount(ctx, c, mount); err != nil {
		return errors.Join(err, a.destroyNew(ctx, c, t.name))
	}

	stay := make(chan os.Signal, 1) // nobody receives: none of these ends the process before it has cleaned up
	signal.Notify(stay, unix.SIGPIPE, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(stay)
	take := foreground()
	result := ran{Workspace: t.name, Changes: []api.Change{}}
	var runErr, left error
	if t.container.image != "" {
		runErr, left = t.container.run(ctx, a, t.name, dir, t.argv)
	} else {
		runErr = a.runCommandIn(ctx, see, attr, t.argv)
	}
	result.ExitCode = exitCode(runErr)

	// From here on signals are ignored: what was created must be removed.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	diffErr := c.Diff(after, api.DiffRequest{Access: a.access(), A: t.name}, func(ch api.Change) error {
		result.Changes = append(result.Changes, ch)
		return nil
	})
	var printErr error
	if !a.json {
		for _, ch := range result.Changes {
			if a.quiet || printErr != nil {
				break
			}
			printErr = printChange(a.out, ch)
		}
	}
	if errors.Is(printErr, unix.EPIPE) { // the reader has seen enough
		printErr = nil
	}
	switch {
	case left != nil:
		t.end = ending{keep: true} // what it may still write
	case diffErr != nil && t.end.ask:
		t.end = ending{keep: true} // there may be more than is known
	case diffErr == nil && len(result.Changes) == 0:
		t.end = ending{keep: t.end.keep, now: true} // nothing is lost
	case t.end.ask:
		t.end = a.askEnding(ctx, t.dir, take)
	}
	kept, err := t.snapshotKept(after)
	got, snapshot, cleanErr := t.clean(context.WithoutCancel(ctx), dir)
	snapshot, cleanErr = cmp.Or(snapshot, kept), errors.Join(left, err, cleanErr)
	result.Applied, result.Conflicts, result.Snapshot = got.Applied, got.Conflicts, snapshot
	result.Kept = t.end.keep || cleanErr != nil
	if a.json {
		printErr = a.result(result, nil)
	}
	if runErr != nil {
		// The exit code is that of CMD. Other errors are only printed.
		if err := errors.Join(diffErr, cleanErr, printErr); err != nil {
			a.printError(err)
		}
		return runErr
	}
	return errors.Join(diffErr, cleanErr, printErr)
}

// snapshotKept takes a snapshot of a workspace that is kept after a container has used it, and gives its id.
func (t throwAway) snapshotKept(ctx context.Context) (string, error) {
	if t.container.image == "" || !t.end.keep {
		return "", nil
	}
	s, err := t.client.Snapshot(ctx, api.SnapshotRequest{Access: t.app.access(), Workspace: t.name})
	if err != nil {
		return "", err
	}
	t.app.note("snapshot %s has what is in workspace %s now", s.ID, t.name)
	return s.ID, nil
}

// clean unmounts the workspace, applies it if that is wanted, and destroys it unless it is kept. It gives the id of the
// snapshot that has what was discarded, if there is one.
func (t throwAway) clean(ctx context.Context, dir string) (got api.ApplyResult, snapshot string, err error) {
	a := t.app
	if err := t.unmount(ctx, dir); err != nil {
		return got, "", err
	}
	if t.end.keep {
		a.note("kept workspace %s; %s", t.name, t.next())
		return got, "", nil
	}
	r := api.DestroyRequest{Now: t.end.now}
	if t.end.apply {
		if got, err = t.applyHome(ctx); err != nil {
			return got, "", err
		}
		r.Now = true // the directory has it, and what was applied is a snapshot, too
	}
	for range 20 { // what CMD started may have a copy of the mount, in its namespace, and end in a moment
		var gone api.DestroyResult
		gone, err = a.destroy(ctx, t.client, t.name, r)
		if gone.Kept != nil {
			snapshot = gone.Kept.ID
		}
		if !errors.Is(err, api.ErrConflict) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		return got, "", fmt.Errorf("workspace %s is left; remove it with '%s': %w", t.name, a.hint("destroy "+t.name), err)
	}
	return got, snapshot, nil
}

// unmount removes the mount of the workspace and its mountpoint.
func (t throwAway) unmount(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
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
	return nil
}

// next says what can be done with a workspace that is kept.
func (t throwAway) next() string {
	verbs := []string{"diff"}
	if t.dir != "" {
		verbs = append(verbs, "apply")
	}
	var hints []string
	for _, verb := range append(verbs, "destroy") {
		hints = append(hints, "'"+t.app.hint(verb+" "+t.name)+"'")
	}
	return "next: " + strings.Join(hints, ", ")
}

// applyHome brings the changes into the directory that the workspace is made from. It says what becomes of the workspace
// if it cannot.
func (t throwAway) applyHome(ctx context.Context) (api.ApplyResult, error) {
	a := t.app
	meter := a.newMeter()
	got, err := t.client.Apply(context.WithoutCancel(ctx), api.ApplyRequest{
		Access: a.access(), From: t.name, To: t.dir, Progress: meter.report(),
	})
	meter.done()
	if err != nil {
		return got, fmt.Errorf("workspace %s is kept: applying it to %s: %w", t.name, quote(t.dir), err)
	}
	if len(got.Conflicts) > 0 {
		if !a.json {
			_ = printApplied(a.err, got, false) // which the error sums up
		}
		return got, failure(api.ErrConflict, "nothing was applied: %s with what was changed in %s meanwhile: workspace %s is kept; "+
			"'%s' with --ours, --theirs or --conflicts=markers settles them", plural(int64(len(got.Conflicts)), "conflict"),
			quote(t.dir), t.name, a.hint("apply "+t.name+" --to "+shellWord(t.dir)))
	}
	a.noteSkips(got)
	a.note("applied to %s; '%s' takes it back", quote(t.dir), a.hint("apply --undo "+shellWord(t.dir)))
	return got, nil
}

// inside says what the command sees, and in which namespaces: the workspace at the path of the directory that it is made
// from, or, without namespaces, at dir, where it is mounted.
func (t throwAway) inside(dir string) (inside, *syscall.SysProcAttr, error) {
	here := inside{Mount: dir, Path: dir, Dir: dir}
	path := t.dir
	if path == "" {
		if t.sandbox {
			return here, nil, usagef("--sandbox needs a directory as --from")
		}
		return here, nil, nil
	}
	if path == "/" {
		return here, nil, usagef("the command cannot see a workspace at /: choose a directory")
	}
	homes, err := homeDirs()
	for _, home := range homes {
		if home != "/" && within(home, path) {
			return here, nil, usagef("the home directory %s is in %s: choose a directory of a project", quote(home), quote(path))
		}
	}
	see := inside{Mount: dir, Path: path, Dir: path}
	if wd, err := os.Getwd(); err == nil {
		if real, err := filepath.EvalSymlinks(wd); err == nil && within(real, path) {
			see.Dir = real
		}
	}
	if t.sandbox {
		if err != nil {
			return here, nil, fmt.Errorf("the home directory, which --sandbox hides: %w", err)
		}
		if slices.Contains(homes, "/") {
			return here, nil, usagef("--sandbox hides the home directory, and HOME is /: set HOME to a directory of its own")
		}
		if err := see.hideHomes(homes, t.show); err != nil {
			return here, nil, err
		}
		see.Closed = snapfsHomes(t.app.home)
	}
	attr, err := namespaces()
	switch {
	case err != nil && t.sandbox:
		return here, nil, failure(api.ErrUnavailable, "unavailable: --sandbox needs a mount namespace, which cannot be made here: %v", err)
	case err != nil:
		t.app.note("the command runs in %s: no mount namespace can be made here, in which it would see the workspace at %s",
			quote(dir), quote(path))
		return here, nil, nil
	case t.sandbox:
		t.app.note("%s: hidden but for the workspace%s", strings.Join(see.Homes, ", "), listed(" and, read-only, ", see.Shown))
	}
	return see, attr, nil
}

func listed(before string, paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return before + strings.Join(paths, ", ")
}

// errSilent is an error without text: CMD has printed its own message.
var errSilent = errors.New("")
