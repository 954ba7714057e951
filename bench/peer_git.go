package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// gitPeer commits every state and packs once at the end, with the given command.
func gitPeer(name string, pack ...string) peer {
	return peer{
		name: name, programs: []string{"git"}, plain: true,
		open: func(ctx context.Context, dir string) (keeper, error) {
			g := git{dir: dir, pack: pack, t: tool{env: []string{
				"GIT_DIR=" + dir, "GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@localhost", "GIT_COMMITTER_NAME=bench",
				"GIT_COMMITTER_EMAIL=bench@localhost", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			}}}
			if err := g.t.run(ctx, "git", "init", "--quiet", "--bare", dir); err != nil {
				return g, err
			}
			for _, kv := range [][2]string{{"gc.auto", "0"}, {"core.looseCompression", "1"}, {"core.bare", "false"}, {"core.excludesFile", "/dev/null"}, {"core.autocrlf", "false"}} {
				if err := g.t.run(ctx, "git", "config", kv[0], kv[1]); err != nil {
					return g, err
				}
			}
			// What a state ignores or converts for itself is kept all the same.
			return g, os.WriteFile(filepath.Join(dir, "info", "attributes"), []byte("* -text -filter -ident -diff\n"), 0o644)
		},
	}
}

type git struct {
	dir  string
	pack []string
	t    tool
}

func (g git) in(tree string) tool {
	t := g.t
	t.env = append(append([]string(nil), t.env...), "GIT_WORK_TREE="+tree)
	t.dir = tree
	return t
}

func (g git) tag(i int) string { return fmt.Sprintf("s%04d", i) }

func (g git) store(ctx context.Context, i int, _, state string) error {
	t := g.in(state)
	if err := t.run(ctx, "git", "add", "-A", "-f", "."); err != nil {
		return err
	}
	if err := t.run(ctx, "git", "commit", "--quiet", "--allow-empty", "-m", g.tag(i)); err != nil {
		return err
	}
	return t.run(ctx, "git", "tag", g.tag(i))
}

func (g git) settle(ctx context.Context) error { return g.t.run(ctx, "git", g.pack...) }

// size leaves out the index, which is a cache of one working tree.
func (g git) size(context.Context) (int64, error) {
	n, err := allocated(g.dir)
	if err != nil {
		return 0, err
	}
	index, err := allocated(filepath.Join(g.dir, "index"))
	return n - index, err
}

func (g git) restore(ctx context.Context, i int, dest string) error {
	t := g.in(dest)
	t.env = append(t.env, "GIT_INDEX_FILE="+dest+".index")
	err := t.run(ctx, "git", "read-tree", "-u", "--reset", g.tag(i))
	return errors.Join(err, os.Remove(dest+".index"))
}

// drop makes the oldest commit that is kept a root and packs again.
func (g git) drop(ctx context.Context, from, to int) error {
	first, err := g.t.output(ctx, "git", "rev-parse", g.tag(to))
	if err != nil {
		return err
	}
	shallow := filepath.Join(g.dir, "shallow")
	if err := os.WriteFile(shallow, first, 0o644); err != nil {
		return fmt.Errorf("cut history: %w", err)
	}
	for i := from; i < to; i++ {
		if err := g.t.run(ctx, "git", "tag", "-d", g.tag(i)); err != nil {
			return err
		}
	}
	if err := g.t.run(ctx, "git", "reflog", "expire", "--expire=now", "--all"); err != nil {
		return err
	}
	if err := g.t.run(ctx, "git", g.pack...); err != nil {
		return err
	}
	return g.t.run(ctx, "git", "prune", "--expire=now")
}

func (g git) close(context.Context) error { return nil }
