package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/tree"
)

// Git commits every state and packs once at the end, with the given command.
func Git(name string, pack ...string) subject.Subject[subject.Store] {
	return subject.Subject[subject.Store]{
		Name: name, Programs: []string{"git"}, Keeps: subject.KeepsFiles,
		Open: func(ctx context.Context, at subject.Site) (subject.Store, error) {
			dir := filepath.Join(at.Dir, "repo")
			g := git{dir: dir, pack: pack, t: program.Setup{Env: []string{
				"GIT_DIR=" + dir,
				"GIT_AUTHOR_NAME=bench",
				"GIT_AUTHOR_EMAIL=bench@localhost",
				"GIT_COMMITTER_NAME=bench",
				"GIT_COMMITTER_EMAIL=bench@localhost",
				"GIT_CONFIG_GLOBAL=/dev/null",
				"GIT_CONFIG_SYSTEM=/dev/null",
			}}}
			if err := g.t.Run(ctx, "git", "init", "--quiet", "--bare", dir); err != nil {
				return g, err
			}
			for _, kv := range [][2]string{
				{"gc.auto", "0"},
				{"core.looseCompression", "1"},
				{"core.bare", "false"},
				{"core.excludesFile", "/dev/null"},
				{"core.autocrlf", "false"},
			} {
				if err := g.t.Run(ctx, "git", "config", kv[0], kv[1]); err != nil {
					return g, err
				}
			}
			// What a state ignores or converts for itself is kept all the same.
			return g, os.WriteFile(
				filepath.Join(dir, "info", "attributes"), []byte("* -text -filter -ident -diff\n"), 0o644,
			)
		},
	}
}

type git struct {
	dir  string
	pack []string
	t    program.Setup
}

func (g git) in(tree string) program.Setup {
	t := g.t
	t.Env = append(append([]string(nil), t.Env...), "GIT_WORK_TREE="+tree)
	t.Dir = tree
	return t
}

func (g git) tag(i int) string { return fmt.Sprintf("s%04d", i) }

func (g git) Store(ctx context.Context, i int, _, state string) error {
	t := g.in(state)
	if err := t.Run(ctx, "git", "add", "-A", "-f", "."); err != nil {
		return err
	}
	if err := t.Run(ctx, "git", "commit", "--quiet", "--allow-empty", "-m", g.tag(i)); err != nil {
		return err
	}
	return t.Run(ctx, "git", "tag", g.tag(i))
}

func (g git) Settle(ctx context.Context) error { return g.t.Run(ctx, "git", g.pack...) }

// Size leaves out the index, which is a cache of one working tree.
func (g git) Size(context.Context) (int64, error) {
	n, err := tree.Allocated(g.dir)
	if err != nil {
		return 0, err
	}
	index, err := tree.Allocated(filepath.Join(g.dir, "index"))
	return n - index, err
}

func (g git) Restore(ctx context.Context, i int, dest string) error {
	t := g.in(dest)
	t.Env = append(t.Env, "GIT_INDEX_FILE="+dest+".index")
	err := t.Run(ctx, "git", "read-tree", "-u", "--reset", g.tag(i))
	return errors.Join(err, os.Remove(dest+".index"))
}

// Drop makes the oldest commit that is kept a root and packs again.
func (g git) Drop(ctx context.Context, from, to int) error {
	first, err := g.t.Output(ctx, "git", "rev-parse", g.tag(to))
	if err != nil {
		return err
	}
	shallow := filepath.Join(g.dir, "shallow")
	if err := os.WriteFile(shallow, first, 0o644); err != nil {
		return fmt.Errorf("cut history: %w", err)
	}
	for i := from; i < to; i++ {
		if err := g.t.Run(ctx, "git", "tag", "-d", g.tag(i)); err != nil {
			return err
		}
	}
	if err := g.t.Run(ctx, "git", "reflog", "expire", "--expire=now", "--all"); err != nil {
		return err
	}
	if err := g.t.Run(ctx, "git", g.pack...); err != nil {
		return err
	}
	return g.t.Run(ctx, "git", "prune", "--expire=now")
}

func (g git) Close(context.Context) error { return nil }
