package cli

import (
	"bytes"
	"strings"
	"testing"

	"snapfs/sandbox/api"
)

// TestEngineIsShown: the engine of a workspace is named where it is not fuse.
func TestEngineIsShown(t *testing.T) {
	var list, kernel, fuse bytes.Buffer
	page := api.WorkspacePage{Workspaces: []api.Workspace{
		{ID: "a", State: api.Mounted, Engine: api.EngineKernel}, {ID: "b", State: api.Unmounted},
	}}
	if err := workspaceTable(&list, page); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(list.String(), "\n"); strings.Fields(lines[1])[1] != "mounted,kernel" ||
		strings.Fields(lines[2])[1] != "unmounted" {
		t.Errorf("list:\n%s", &list)
	}
	for i, out := range []*bytes.Buffer{&kernel, &fuse} {
		if err := showWorkspace(out, page.Workspaces[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(kernel.String(), "engine") || !strings.Contains(kernel.String(), "kernel") ||
		strings.Contains(fuse.String(), "engine") {
		t.Errorf("show:\n%s\n%s", &kernel, &fuse)
	}
}

// TestEngineOption: -o and --engine are the same option, of which the last one counts; remount is told of either.
func TestEngineOption(t *testing.T) {
	for _, c := range []struct{ args, engine, changes string }{
		{"", "", ""},
		{"-o engine=kernel", "kernel", "engine=kernel"},
		{"--engine kernel", "kernel", "engine=kernel"},
		{"-o engine=kernel --engine fuse", "fuse", "engine=kernel engine=fuse"},
		{"--engine fuse -o remount,engine=auto,ro", "auto", "engine=auto ro engine=auto"},
	} {
		var o mountOptions
		cmd := (&app{}).mountCommand()
		cmd.ResetFlags()
		mountFlags(cmd, &o)
		if err := cmd.ParseFlags(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.changes(cmd), " "); o.Engine != c.engine || got != c.changes || o.check(true) != nil {
			t.Errorf("%s: engine %q, changes %q, want %q, %q; check: %v", c.args, o.Engine, got, c.engine, c.changes, o.check(true))
		}
	}
}

func TestOfSnapfs(t *testing.T) {
	for _, c := range []struct {
		right, source string
		ours          bool
	}{
		{"fuse.snapfs app rw,user_id=0", "app", true},
		{"overlay app rw,lowerdir=/h/lower,upperdir=/h/uppers/12/upper,workdir=/h/uppers/12/work,index=off", "app", true},
		{"overlay overlay rw,lowerdir=/l,upperdir=/var/lib/docker/overlay2/5f/diff,workdir=/w", "", false},
		{"overlay Some/Thing rw,lowerdir=/l,upperdir=/h/uppers/12/upper", "", false},
		{"overlay app ro,lowerdir=/a:/b", "", false},
		{"ext4 /dev/sda rw", "", false},
		{"fuse.snapfs", "", false},
	} {
		if source, ours := ofSnapfs(c.right); ours != c.ours || ours && source != c.source {
			t.Errorf("%s: %q, %v, want %q, %v", c.right, source, ours, c.source, c.ours)
		}
	}
}
