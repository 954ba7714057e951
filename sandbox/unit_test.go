package sandbox

import (
	"slices"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox/internal/catalog"
)

func TestParseMountinfo(t *testing.T) {
	const text = `22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 22 0:55 / /mnt/a\040b rw,nosuid master:1 propagate_from:2 - fuse.snapfs w\0401 rw,user_id=0
40 36 0:56 / /mnt/a\040b ro - tmpfs none rw
`
	table, err := parseMountinfo(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := mountTable{
		{22, "253:0", "/", "/", "ext4", "/dev/vda", false, ""},
		{36, "0:55", "/", "/mnt/a b", "fuse.snapfs", "w 1", false, ""},
		{40, "0:56", "/", "/mnt/a b", "tmpfs", "none", true, ""},
	}
	if !slices.Equal(table, want) {
		t.Errorf("got %+v", table)
	}
	if e, ok := table.at("/mnt/a b"); !ok || e.fstype != "tmpfs" {
		t.Errorf("on top: %+v", e)
	}
	if !table.hasDevice("0:55") || table.hasDevice("0:5") {
		t.Error("hasDevice")
	}
	if _, err := parseMountinfo(strings.NewReader("1 2 3\n")); err == nil {
		t.Error("a short line was accepted")
	}
	// An overlay of many layers, a source that is empty, and one with every character that the kernel escapes.
	long := "41 22 0:57 / /long rw - overlay overlay rw" + strings.Repeat(",lowerdir+=/var/lib/layers/one", 30_000) + "\n"
	const others = "42 22 0:58 / /empty rw - tmpfs  rw\n43 22 0:59 / /m\\011\\012\\134 rw - tmpfs \\040\\011\\012\\134\\043 rw"
	table, err = parseMountinfo(strings.NewReader(text + long + others))
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, mountEntry{41, "0:57", "/", "/long", "overlay", "overlay", true, ""}, mountEntry{42, "0:58", "/", "/empty", "tmpfs", "", true, ""},
		mountEntry{43, "0:59", "/", "/m\t\n\\", "tmpfs", " \t\n\\#", true, ""})
	if !slices.Equal(table, want) {
		t.Errorf("got %+v", table)
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/x", "/", true}} {
		if got := below(c.path, c.dir); got != c.want {
			t.Errorf("below(%s, %s) = %v", c.path, c.dir, got)
		}
	}
}

func TestSurplus(t *testing.T) {
	now := time.Date(2031, 5, 10, 12, 0, 0, 0, time.UTC)
	var all []*catalog.Snapshot
	for _, age := range []time.Duration{100 * time.Hour, 50 * time.Hour, 49 * time.Hour, 5 * time.Hour, 4 * time.Hour, time.Minute} {
		all = append(all, &catalog.Snapshot{ID: age.String(), CreatedAt: now.Add(-age)})
	}
	for _, c := range []struct {
		r    PruneRequest
		want string
	}{
		{PruneRequest{KeepLast: 2}, "5h0m0s 49h0m0s 50h0m0s 100h0m0s"},
		{PruneRequest{KeepLast: 10}, ""},
		{PruneRequest{KeepDaily: 2}, "4h0m0s 5h0m0s 50h0m0s 100h0m0s"},
		{PruneRequest{KeepDaily: 3, KeepLast: 2}, "5h0m0s 50h0m0s"},
		{PruneRequest{OlderThan: 48 * time.Hour}, "49h0m0s 50h0m0s 100h0m0s"},
		{PruneRequest{KeepLast: 4, OlderThan: 48 * time.Hour}, "50h0m0s 100h0m0s"},
	} {
		var got []string
		for _, s := range surplus(c.r, all, nil, now) {
			got = append(got, s.ID)
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%+v: got %q, want %q", c.r, g, c.want)
		}
	}
}

// TestReusedDevice: a file system that got the device number of a connection that has ended is none of its mounts.
func TestReusedDevice(t *testing.T) {
	l := &live{device: "0:50", source: "ended"}
	own := mountEntry{device: "0:50", root: "/", point: "/a", fstype: mountType, source: "ended"}
	other, disk := own, own
	other.source, other.point = "running", "/b"
	disk.fstype, disk.point = "tmpfs", "/c"
	if got := l.entries(mountTable{other, own, disk}); len(got) != 1 || got[0] != own {
		t.Errorf("got %v", got)
	}
}
