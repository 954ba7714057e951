package mcp

import (
	"testing"

	"snapfs/sandbox/api"
)

// TestMoves: an agent goes from workspace to workspace, is started again, and finds itself where it was, or what can be had
// of that.
func TestMoves(t *testing.T) {
	s := newStation(t)
	who := someone("s")
	who.Start.Workspace = "app"
	a := s.begin(who)
	text, out := a.call("workspace_snapshot", args{"name": "start"})
	has(t, text, "Note: Workspace app is new", `Frozen as snapshot "start"`)
	if out["workspace"] != "app" {
		t.Errorf("snapshot: %v", out)
	}
	_, out = a.call("workspace_branch", args{"snapshot": "start", "name": "try"})
	if out["workspace"] != "try" || out["previous"] != "app" {
		t.Errorf("branch: %v", out)
	}
	a.call("workspace_snapshot", args{"name": "tried"})
	text, out = a.call("workspace_list_snapshots", nil)
	has(t, text, `name "start"`, `name "tried"`)
	if out["workspace"] != "try" || out["truncated"] != false {
		t.Errorf("list: %v", out)
	}
	_, out = a.call("workspace_restore", args{"snapshot": "start"}) // a name of the workspace that this one comes from
	third, _ := out["workspace"].(string)
	if out["previous"] != "try" || third == "" {
		t.Errorf("restore: %v", out)
	}

	// Started again: there, gone with a snapshot, gone without.
	again := s.begin(who)
	text, out = again.call("workspace_list_snapshots", nil)
	has(t, text, "You go on in workspace "+third)
	if out["workspace"] != third {
		t.Errorf("resumed in %v, want %s", out["workspace"], third)
	}
	again.call("workspace_snapshot", args{"name": "kept"})
	access := api.Access{Session: "s"}
	destroy := func(name string) {
		t.Helper()
		if _, err := s.home.Destroy(t.Context(), api.DestroyRequest{Access: access, Ref: name, Now: true}); err != nil {
			t.Fatal(err)
		}
	}
	destroy(third)
	text, out = s.begin(who).call("workspace_list_snapshots", nil)
	has(t, text, "restored from its newest snapshot")
	if out["workspace"] != third {
		t.Errorf("restored as %v, want %s", out["workspace"], third)
	}
	again.call("workspace_delete_snapshot", args{"snapshot": "kept"})
	destroy(third)
	text, out = s.begin(who).call("workspace_list_snapshots", nil)
	has(t, text, third+" is gone, and has no snapshot")
	fresh, _ := out["workspace"].(string)
	if fresh == third || fresh == "app" {
		t.Errorf("fresh as %s", fresh)
	}
	if _, out = s.begin(who).call("workspace_list_snapshots", nil); out["workspace"] != fresh {
		t.Errorf("then in %v, want %s", out["workspace"], fresh)
	}

	// A state of its own begins where that of the workspace did.
	who.Start.State = "other"
	if _, out = s.begin(who).call("workspace_list_snapshots", nil); out["workspace"] != "app" {
		t.Errorf("another state is in %v", out["workspace"])
	}
}

// TestRefusals: what is wrong with the arguments is said in words, and nothing of other sessions.
func TestRefusals(t *testing.T) {
	s := newStation(t)
	mine, other := someone("mine"), someone("other")
	mine.Start.Workspace, other.Start.Workspace = "app", "theirs"
	b := s.begin(other)
	_, out := b.call("workspace_snapshot", args{"name": "secret"})
	id := out["snapshot"].(map[string]any)["id"]
	a := s.begin(mine)
	none := "workspace_list_snapshots lists them"
	for _, ref := range []any{"secret", id, "theirs:secret", "nothing", "/etc", "../x", "theirs", "{", "-", "0199"} {
		a.fails("workspace_restore", args{"snapshot": ref}, "no snapshot named", none)
		a.fails("workspace_delete_snapshot", args{"snapshot": ref}, "no snapshot named", none)
		a.fails("workspace_diff", args{"from": ref}, "no snapshot named", none)
	}
	a.fails("workspace_restore", args{"snapshot": "  "}, "snapshot is blank")
	a.fails("workspace_restore", args{"snapshot": ""}, "snapshot is empty")
	a.fails("workspace_restore", args{}, "snapshot")
	a.fails("workspace_snapshot", args{"nmae": "x"}, "nmae")
	a.fails("workspace_snapshot", args{"name": 7}, "name")
	a.fails("workspace_snapshot", args{"name": " x"}, "blank")
	a.fails("workspace_snapshot", args{"ttl_hours": -1}, "ttl_hours")
	a.call("workspace_snapshot", args{"name": "mine"})
	a.fails("workspace_snapshot", args{"name": "mine"}, "already", "workspace_delete_snapshot")
	a.fails("workspace_restore", args{"snapshot": "mine", "name": "Not A Name"}, "lower-case letters")
	a.fails("workspace_restore", args{"snapshot": "mine", "name": "theirs"}, "theirs")

	// The name of a workspace of another session.
	mine.Start.Workspace = "theirs"
	if _, out := s.begin(mine).call("workspace_list_snapshots", nil); out["workspace"] == "theirs" {
		t.Errorf("it is in a workspace of another session")
	}
}
