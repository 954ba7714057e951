package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// withClient runs fn with a connection to the daemon.
func (a *app) withClient(ctx context.Context, n need, fn func(c *client.Client) error) error {
	c, err := a.connect(ctx, n)
	if err != nil {
		return err
	}
	return errors.Join(fn(c), c.Close())
}

// absolute makes a path of the command line one that the daemon, which has another working directory, understands.
func absolute(what, path string) (string, error) {
	if path == "" {
		return "", usagef("empty %s", what)
	}
	if strings.ContainsRune(path, 0) {
		return "", usagef("%s with a NUL byte", what)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", usagef("%s %q: %w", what, path, err)
	}
	return abs, nil
}

// source settles what --from names: a path if there is such a file or it is spelled as one, else a snapshot.
func source(cmd *cobra.Command, from string) (string, error) {
	if from == "" {
		if cmd.Flags().Changed("from") {
			return "", usagef("empty --from")
		}
		return "", nil
	}
	if strings.HasPrefix(from, "{") { // the ref of a snapshot, whatever is in it
		return from, nil
	}
	if _, err := os.Lstat(from); err == nil || strings.ContainsRune(from, '/') || from == "." || from == ".." {
		abs, err := absolute("source", from)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(abs); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return "", failure(api.ErrNotFound, "source %s does not exist", quote(abs))
			}
			return "", fmt.Errorf("source: %w", err)
		}
		return abs, nil
	}
	return from, nil
}

// makeMountpoint makes the last element of a path that is missing. undo takes it away again, and is never nil.
func makeMountpoint(path string) (abs string, undo func(), err error) {
	undo = func() {}
	if abs, err = absolute("mountpoint", path); err != nil {
		return "", undo, err
	}
	switch err := os.Mkdir(abs, 0o755); {
	case err == nil:
		return abs, func() { _ = os.Remove(abs) }, nil // fails where somebody put something into it: then it stays
	case errors.Is(err, fs.ErrExist):
		return abs, undo, nil // the daemon judges what is there
	case errors.Is(err, fs.ErrNotExist):
		return "", undo, failure(api.ErrNotFound, "mountpoint %s: its parent does not exist", quote(abs))
	default:
		return "", undo, fmt.Errorf("mountpoint: %w", err)
	}
}

// mountFlags adds the flags that say how a workspace is shown.
func mountFlags(cmd *cobra.Command, o *api.MountOptions) {
	f := cmd.Flags()
	f.StringVar(&o.Transport, "transport", "auto", "how requests travel: auto, uring or dev")
	f.BoolVar(&o.ReadOnly, "read-only", false, "refuse writes")
	f.BoolVar(&o.NoSUID, "nosuid", false, "ignore setuid and setgid bits")
	f.BoolVar(&o.NoDev, "nodev", false, "ignore device files")
	trustFlags(cmd, o)
	f.BoolVar(&o.NoExec, "noexec", false, "refuse to run programs")
	f.BoolVar(&o.NoAtime, "noatime", false, "say so in the mount table; times of access are not kept up in any case")
	f.BoolVar(&o.Writeback, "writeback", false,
		"keep writes in the kernel until close, fsync or some seconds later; snapshots lack what is still there")
}

// trustFlags adds the flags that honour what a tree from elsewhere brings along.
func trustFlags(cmd *cobra.Command, o *api.MountOptions) {
	cmd.Flags().BoolVar(&o.SUID, "suid", false, "honour setuid and setgid of a tree that comes from an image, too")
	cmd.Flags().BoolVar(&o.Dev, "dev", false, "honour device files of a tree that comes from an image, too")
}

// checkMount refuses options that make no sense before anything is made.
func checkMount(o api.MountOptions) error {
	if o.SUID && o.NoSUID {
		return usagef("--suid and --nosuid exclude each other")
	}
	if o.Dev && o.NoDev {
		return usagef("--dev and --nodev exclude each other")
	}
	return checkTransport(o.Transport)
}

func checkTransport(name string) error {
	switch name {
	case "auto", "uring", "dev":
		return nil
	}
	return usagef("--transport %q: auto, uring or dev", name)
}

// exact is cobra.ExactArgs with a message that names what is missing.
func exact(names ...string) cobra.PositionalArgs { return between(len(names), names...) }

// between takes at least n of the arguments that names name.
func between(n int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return usagef("missing %s", strings.Join(names[len(args):n], " and "))
		case len(args) > len(names):
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// shellWord quotes a word for a shell where it needs it.
func shellWord(s string) string {
	for _, r := range s {
		if !strings.ContainsRune("/._-+:@%,=", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
	}
	return s
}

// mountedLine says where a workspace is shown.
func mountedLine(ws api.Workspace) string {
	if ws.State != api.Mounted {
		return fmt.Sprintf("%s is %s", ws.ID, ws.State)
	}
	return fmt.Sprintf("%s on %s", ws.ID, quote(ws.Mountpoint))
}
