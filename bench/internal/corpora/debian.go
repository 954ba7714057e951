package corpora

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"

	"snapfs/bench/internal/program"
)

//go:embed scripts/debian_step.sh
var debianStep []byte

// DebianMirror is where packages come from. A stable release only changes with its point releases; a mirror that keeps
// old days makes the corpus the same for ever.
const DebianMirror = "http://deb.debian.org/debian"

// debianCorpus is the root file system of a container on its way through package installs and a removal.
func debianCorpus() Corpus {
	steps := [][]string{
		{"bootstrap"},
		{"install", "ca-certificates", "curl"},
		{"install", "python3", "python3-requests"},
		{"install", "git", "less"},
		{"install", "gcc", "make", "libc6-dev"},
		{"install", "sqlite3", "vim-tiny", "rsync"},
		{"remove", "gcc", "make", "libc6-dev"},
		{"install", "python3-numpy"},
	}
	return Corpus{
		Name: "C5", recipe: 1, long: true, root: true, Disk: 2_500_000_000, Logical: 3_500_000_000,
		digest:   "f0019a7310434908a6c667f1f739c78fb3ed126c3e909c83c2e74c79f2a67fcb",
		programs: []string{"debootstrap", "unshare", "chroot", "mount"},
		about:    "root file system of Debian 12 through package installs and a removal",
		build: func(ctx context.Context, b *Builder) error {
			apt := filepath.Join(b.dir, "apt") // package lists and packages, which no state has
			for _, d := range []string{"lists", "cache"} {
				if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
					return err
				}
			}
			for _, step := range steps {
				// In a mount and process namespace of its own, whose mounts and processes end with it.
				args := []string{"--mount", "--pid", "--fork", "--kill-child", "sh", "-s", "--"}
				args = append(args, b.Workspace, apt, b.mirror)
				args = append(args, step...)
				if err := (program.Setup{Stdin: debianStep}).Run(ctx, "unshare", args...); err != nil {
					return err
				}
				if err := b.Freeze(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
