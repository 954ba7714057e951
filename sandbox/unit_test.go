package sandbox

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox/api"
)

func TestIDsGrow(t *testing.T) {
	var s idSource
	// From a clock that was far ahead, with its counter about to overflow.
	s.seen("fffffff0-0000-7fff-8000-000000000000")
	last := "fffffff0-0000-7fff-8000-000000000000"
	for range 10000 {
		id := s.next()
		if id <= last || !api.IsID(id) {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
	var now idSource
	if a, b := now.next(), now.next(); a >= b || !regexp.MustCompile(`^[0-9a-f-]{14}7[0-9a-f]{3}-[89ab]`).MatchString(a) {
		t.Errorf("got %s, %s", a, b)
	}
}

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
		{"253:0", "/", "ext4", "/dev/vda"},
		{"0:55", "/mnt/a b", "fuse.snapfs", "w 1"},
		{"0:56", "/mnt/a b", "tmpfs", "none"},
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
	want = append(want, mountEntry{"0:57", "/long", "overlay", "overlay"}, mountEntry{"0:58", "/empty", "tmpfs", ""},
		mountEntry{"0:59", "/m\t\n\\", "tmpfs", " \t\n\\#"})
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

// TestCollect checks which layers go with their last name.
func TestCollect(t *testing.T) {
	c := &catalog{
		ids: &idSource{}, workspaces: map[string]*workspaceRecord{}, snapshots: map[string]*snapshotRecord{},
		layers: map[string]*layerRecord{}, holders: map[string]map[holder]bool{}, pinned: map[string]bool{},
		touched: map[string]bool{},
	}
	// base <- one <- two, base <- side
	w, v := &workspaceRecord{ID: "w", Base: "two"}, &workspaceRecord{ID: "v", Base: "side"}
	s := &snapshotRecord{ID: "s", Top: "one"}
	c.apply(&change{
		putLayers: []*layerRecord{
			{ID: "base", State: Stored},
			{ID: "one", Parent: "base", State: Stored},
			{ID: "two", Parent: "one", State: Sealed, Upper: 7},
			{ID: "side", Parent: "base", State: Stored},
		},
		putWorkspaces: []*workspaceRecord{w, v}, putSnapshots: []*snapshotRecord{s},
	})
	gone := func(ch *change) string {
		c.collect(ch)
		var ids []string
		for _, l := range ch.delLayers {
			ids = append(ids, l.ID)
		}
		return strings.Join(ids, " ")
	}
	for _, test := range []struct {
		name string
		ch   *change
		want string
	}{
		{"a snapshot below others", &change{delSnapshots: []*snapshotRecord{s}}, ""},
		{"a workspace alone on its layer", &change{delWorkspaces: []*workspaceRecord{w}}, "two"},
		{"the snapshot with it", &change{delWorkspaces: []*workspaceRecord{w}, delSnapshots: []*snapshotRecord{s}}, "two one"},
		{"everything", &change{delWorkspaces: []*workspaceRecord{w, v}, delSnapshots: []*snapshotRecord{s}}, "two side one base"},
		{"a workspace that moves", &change{putWorkspaces: []*workspaceRecord{{ID: "w", Base: "one"}}}, "two"},
		{"a workspace that moves up", &change{
			putWorkspaces: []*workspaceRecord{{ID: "w", Base: "three"}},
			putLayers:     []*layerRecord{{ID: "three", Parent: "two"}},
		}, ""},
	} {
		if got := gone(test.ch); got != test.want {
			t.Errorf("%s: gone %q, want %q", test.name, got, test.want)
		}
	}
	ch := &change{delWorkspaces: []*workspaceRecord{w}}
	if gone(ch); !slices.Equal(ch.putTrash, []uint64{7}) {
		t.Errorf("trash %v", ch.putTrash)
	}
	c.pinned["two"] = true
	if got := gone(&change{delWorkspaces: []*workspaceRecord{w}}); got != "" {
		t.Errorf("pinned: gone %q", got)
	}
	own := func(top string, who holder) int { return len(c.own(top, who)) }
	if own("two", holder{'w', "w"}) != 1 || own("one", holder{'s', "s"}) != 0 || own("side", holder{'w', "v"}) != 1 {
		t.Error("own")
	}
}

func TestDecodeEvent(t *testing.T) {
	good, err := decodeEvent("w/x", []byte(`{"id":"x","workspace":"w","kind":"created","level":"info"}`))
	if err != nil || good.Kind != EventCreated {
		t.Errorf("got %+v, %v", good, err)
	}
	for _, bad := range []string{`{"kind":"teleported"}`, `{"kind":""}`, `{}`, `null`, `[]`, `{"kind":`, ``, `{"kind":7}`} {
		if e, err := decodeEvent("w/x", []byte(bad)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %+v, %v", bad, e, err)
		}
	}
}

func TestSurplus(t *testing.T) {
	now := time.Date(2031, 5, 10, 12, 0, 0, 0, time.UTC)
	var all []*snapshotRecord
	for _, age := range []time.Duration{100 * time.Hour, 50 * time.Hour, 49 * time.Hour, 5 * time.Hour, 4 * time.Hour, time.Minute} {
		all = append(all, &snapshotRecord{ID: age.String(), CreatedAt: now.Add(-age)})
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
		for _, s := range surplus(c.r, all, now) {
			got = append(got, s.ID)
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%+v: got %q, want %q", c.r, g, c.want)
		}
	}
}
