package corpora

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/progress"
)

// Commits checks out every so many-th commit of a repository, the newest limit of them, as a history into dir. The
// repository is only read.
func Commits(ctx context.Context, repo string, every, limit int, dir string, bar *progress.Bar) (History, error) {
	h := History{Name: "git", About: fmt.Sprintf("%s, every %d. commit", repo, every)}
	repo, err := filepath.Abs(repo)
	if err != nil {
		return h, fmt.Errorf("find repository: %w", err)
	}
	out, err := program.Setup{Dir: repo}.Output(
		ctx, "git", "log", "--first-parent", "--format=%H", "-n", strconv.Itoa(every*limit),
	)
	if err != nil {
		return h, err
	}
	var ids []string
	for i, id := range strings.Fields(string(out)) {
		if i%every == 0 {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids)
	b, err := NewBuilder("git", dir, bar)
	if err != nil {
		return h, err
	}
	for _, id := range ids {
		// Only what differs from the commit before is written, as a real checkout does.
		t := program.Setup{
			Dir: b.Workspace,
			Env: []string{
				"GIT_DIR=" + gitDir(repo), "GIT_WORK_TREE=" + b.Workspace,
				"GIT_INDEX_FILE=" + filepath.Join(dir, "index"),
			},
		}
		if err := t.Run(ctx, "git", "read-tree", "-u", "--reset", id); err != nil {
			return h, err
		}
		if err := b.Freeze(ctx); err != nil {
			return h, err
		}
		h.States = append(h.States, b.Prev)
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
