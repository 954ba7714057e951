package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// commits checks out every so many-th commit of a repository as a history of its own, into the scratch
// directory. The repository is only read.
func (e *env) commits(ctx context.Context) (history, error) {
	h := history{name: "git", about: fmt.Sprintf("%s, every %d. commit", e.repo, e.every)}
	repo, err := filepath.Abs(e.repo)
	if err != nil {
		return h, fmt.Errorf("find repository: %w", err)
	}
	out, err := tool{dir: repo}.output(ctx, "git", "log", "--first-parent", "--format=%H", "-n", strconv.Itoa(e.every*e.limit))
	if err != nil {
		return h, err
	}
	var ids []string
	for i, id := range strings.Fields(string(out)) {
		if i%e.every == 0 {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids)
	dir := filepath.Join(e.work, "git")
	b := &builder{name: "git", ws: filepath.Join(dir, "ws"), dir: dir, bar: e.bar, since: time.Now().Add(-time.Minute)}
	for _, d := range []string{b.ws, filepath.Join(dir, "states")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return h, fmt.Errorf("check out: %w", err)
		}
	}
	for _, id := range ids {
		// Only what differs from the commit before is written, as a real checkout does.
		t := tool{dir: b.ws, env: []string{"GIT_DIR=" + gitDir(repo), "GIT_WORK_TREE=" + b.ws, "GIT_INDEX_FILE=" + filepath.Join(dir, "index")}}
		if err := t.run(ctx, "git", "read-tree", "-u", "--reset", id); err != nil {
			return h, err
		}
		if err := b.freeze(ctx); err != nil {
			return h, err
		}
		h.states = append(h.states, b.prev)
	}
	return h, nil
}

// gitDir is where a repository keeps its objects: in .git, or at the top if it is bare.
func gitDir(repo string) string {
	if _, err := os.Stat(filepath.Join(repo, ".git")); err == nil {
		return filepath.Join(repo, ".git")
	}
	return repo
}
