package program

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// debianPackages says where a program comes from.
var debianPackages = map[string]string{
	"restic":         "restic",
	"borg":           "borgbackup",
	"git":            "git",
	"btrfs":          "btrfs-progs",
	"mkfs.btrfs":     "btrfs-progs",
	"mksquashfs":     "squashfs-tools",
	"unsquashfs":     "squashfs-tools",
	"squashfuse":     "squashfuse",
	"fuse-overlayfs": "fuse-overlayfs",
	"rsync":          "rsync",
	"tar":            "tar",
	"gzip":           "gzip",
	"mount":          "mount",
	"umount":         "mount",
	"node":           "nodejs",
	"npm":            "npm",
	"npx":            "npm",
	"python3":        "python3",
	"sqlite3":        "sqlite3",
	"fio":            "fio",
	"fusermount3":    "fuse3",
	"debootstrap":    "debootstrap",
	"cp":             "coreutils",
	"unshare":        "util-linux",
	"chroot":         "coreutils",
	"mkfs.xfs":       "xfsprogs",
}

// Packages names the packages of programs, and of those that no package is known for the program.
func Packages(programs []string) []string {
	var out []string
	for _, p := range programs {
		name := debianPackages[p]
		if name == "" {
			name = p
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Install installs what is missing; it needs root.
func Install(ctx context.Context) error {
	var packages []string
	for program, pkg := range debianPackages {
		if len(Missing([]string{program})) > 0 && !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	if len(packages) == 0 {
		fmt.Println("all peers are installed")
		return nil
	}
	slices.Sort(packages)
	fmt.Println("installing", packages)
	t := Setup{Env: []string{"DEBIAN_FRONTEND=noninteractive"}}
	if os.Geteuid() != 0 {
		return fmt.Errorf("run as root: apt-get install %v", packages)
	}
	if err := t.Run(ctx, "apt-get", "update"); err != nil {
		return err
	}
	return t.Run(ctx, "apt-get", append([]string{"install", "-y", "--no-install-recommends"}, packages...)...)
}
