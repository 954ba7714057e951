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

// absolute makes a path absolute, because the daemon has another working directory.
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

// source resolves --from: a path if such a file exists or the word looks like a path, else a snapshot. onlyOne is to
// follow it.
func source(cmd *cobra.Command, from string) (string, error) {
	if from == "" {
		if cmd.Flags().Changed("from") {
			return "", usagef("empty --from")
		}
		return "", nil
	}
	if strings.HasPrefix(from, "{") { // the ref of a snapshot
		return from, nil
	}
	if dir, err := os.Getwd(); err == nil {
		if image, ok := imageSource(from, dir); ok {
			return image, nil
		}
	}
	if _, err := os.Lstat(from); err == nil || strings.ContainsRune(from, '/') || from == "." || from == ".." {
		abs, err := absolute("source", from)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(abs); err != nil {
			if _, _, ok := api.SplitRef(from); ok { // PATH:NAME
				return from, nil
			}
			if errors.Is(err, fs.ErrNotExist) {
				return "", failure(api.ErrNotFound, "source %s does not exist", quote(abs))
			}
			return "", fmt.Errorf("source: %w", err)
		}
		return abs, nil
	}
	return from, nil
}

// onlyOne refuses a --from that is a file here and a snapshot of this name, too.
func (a *app) onlyOne(ctx context.Context, c api.API, from, source string) error {
	if source == from || api.IsPath(from) {
		return nil
	}
	o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: from})
	if errors.Is(err, api.ErrConflict) {
		return err // several snapshots
	}
	if err != nil || o.Snapshot == nil {
		return nil // the file it is
	}
	return failure(api.ErrConflict, "conflict: --from %s is a file here and a snapshot: write ./%s or %s",
		quote(from), from, o.Snapshot.Workspace+":"+from)
}

// exact is cobra.ExactArgs with an error that names the missing arguments.
func exact(names ...string) cobra.PositionalArgs { return between(len(names), names...) }

// between requires the first n of the named arguments; the others are optional.
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

// shellWord quotes a word for a shell, if needed.
func shellWord(s string) string {
	for _, r := range s {
		if !strings.ContainsRune("/._-+:@%,=", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') &&
			(r < 'A' || r > 'Z') {
			return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
	}
	return s
}

// mountedLine says where a workspace is mounted.
func mountedLine(ws api.Workspace) string {
	if ws.State != api.Mounted {
		return fmt.Sprintf("%s is %s", ws.ID, ws.State)
	}
	return fmt.Sprintf("%s on %s", ws.ID, quote(ws.Mountpoint))
}
