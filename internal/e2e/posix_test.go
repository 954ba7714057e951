package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/posix"
)

// peers are the file systems that the suite runs on: what puts one at mnt over a copy of the directory lower.
var peers = []struct{ name, mount string }{
	{"ext4", `cp -a "$1/." "$2"`},
	{"overlay", `mkdir -p u w; mount -t overlay overlay -o "lowerdir=$1,upperdir=u,workdir=w,redirect_dir=on,index=on" "$2"`},
	{"fuse-overlayfs", `mkdir -p u w; fuse-overlayfs -o "lowerdir=$1,upperdir=u,workdir=w,allow_other,default_permissions,suid,dev" "$2"`},
	{"snapfs", ``},
	{"snapfs, kernel engine", ``},
}

// parted are the cases in which a file of a lower has several names, which part with the kernel engine when it is written:
// there is no index.
var parted = []string{
	"lower link/names that were there before", "lower rename/to itself and to another name of itself",
	"lower unlink/ctime of the other name",
}

// TestPosixSuite runs the suite on snapfs, ext4, the kernel's overlayfs and fuse-overlayfs, on objects made in the
// upper and on objects of the lower. What passes on the kernel's overlayfs has to pass on snapfs, by either engine.
func TestPosixSuite(t *testing.T) {
	h := newHome(t)
	cases, err := posix.Cases()
	require.NoError(t, err)
	half := func(half, dir string) []posix.Outcome {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		all, err := posix.Apart(ctx, half, dir)
		require.NoError(t, err)
		return all
	}
	shell(t, soon, h.tmp, `chmod 755 . ..; mkdir lower empty`)
	for _, o := range half("prepare", h.path("lower")) {
		require.Empty(t, o.Failed, "preparing %s", o.Name)
	}
	failed := map[string]map[string]string{} // by file system and case
	var table strings.Builder
	fmt.Fprintf(&table, "%-24s %8s %8s\n", "", "upper", "lower")
	for _, p := range peers {
		fmt.Fprintf(&table, "%-24s", p.name)
		failed[p.name] = map[string]string{}
		for _, over := range []string{"empty", "lower"} {
			dir := h.makeDir(p.name + "-" + over)
			mnt := h.makeDir(p.name + "-" + over + "/mnt")
			unmount := func() {}
			switch {
			case p.name == "snapfs":
				h.ok("up", "over-"+over, mnt, "--from", h.path(over))
			case p.mount == "":
				h.ok("up", "kernel-over-"+over, mnt, "--from", h.path(over), "--engine", "kernel")
			default:
				shell(t, soon, dir, p.mount, h.path(over), mnt)
				t.Cleanup(func() { _ = unix.Unmount(mnt, unix.MNT_DETACH) }) // a failed test's
				unmount = func() { shell(t, soon, dir, `mountpoint -q mnt && umount mnt || true`) }
			}
			var prepared []posix.Outcome
			if over == "empty" {
				prepared = half("prepare", mnt)
			}
			passed := 0
			for i, o := range half("check", mnt) {
				if prepared != nil && prepared[i].Failed != "" {
					o.Failed = prepared[i].Failed
				}
				if o.Failed == "" {
					passed++
				} else {
					failed[p.name][over+" "+o.Name] = o.Failed
				}
			}
			unmount()
			fmt.Fprintf(&table, " %4d/%3d", passed, len(cases))
		}
		table.WriteString("\n")
	}
	t.Logf("cases passed:\n%s", table.String())
	for _, p := range peers {
		for _, over := range []string{"empty", "lower"} {
			for _, c := range cases {
				if f := failed[p.name][over+" "+c.Name]; f != "" && (p.name != "fuse-overlayfs" || os.Getenv("SNAPFS_LONG") != "") {
					t.Logf("%s over %s: %s: %.200s", p.name, over, c.Name, f)
				}
			}
		}
	}
	for _, own := range []string{"snapfs", "snapfs, kernel engine"} {
		for name, f := range failed[own] {
			if _, theirs := failed["overlay"][name]; !theirs && (own == "snapfs" || !slices.Contains(parted, name)) {
				t.Errorf("%s: passes on overlay, on %s: %.300s", name, own, f)
			}
		}
	}
}
