package apitest

import (
	"fmt"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// testPositions: positions are of a session, follow a workspace that is renamed, outlive one that is destroyed and the
// service, and the oldest gives way.
func testPositions(e *env) {
	positions := func() api.Positions { return e.api.(api.Positions) }
	get := func(session, name string) string {
		e.Helper()
		p, err := positions().Position(e.Context(), api.PositionRequest{Access: sandbox.Access{Session: session}, Name: name})
		if err != nil {
			e.wants(err, sandbox.ErrNotFound, name)
			return ""
		}
		return p.Workspace
	}
	set := func(session, name, workspace string) error {
		_, err := positions().SetPosition(e.Context(), api.SetPositionRequest{
			PositionRequest: api.PositionRequest{Access: sandbox.Access{Session: session}, Name: name}, Workspace: workspace,
		})
		return err
	}
	ok := func(session, name, workspace string) {
		e.Helper()
		if err := set(session, name, workspace); err != nil {
			e.Fatal(err)
		}
	}
	is := func(session, name, want string) {
		e.Helper()
		if got := get(session, name); got != want {
			e.Errorf("position %s of %s is in %q, want %q", name, session, got, want)
		}
	}
	e.create("a", "")
	e.create("b", "")
	is("default", "agent", "")
	ok("default", "agent", "a")
	ok("default", "other", "b")
	is("default", "agent", "a")
	is("default", "age", "")
	is("another", "agent", "")
	e.wants(set("default", "agent", "none"), sandbox.ErrNotFound, "none")
	e.wants(set("another", "agent", "a"), sandbox.ErrRefused, "a")
	e.wants(set("default", "a/b", "a"), sandbox.ErrInvalid, "position")
	ok("default", "agent", "b")
	if _, err := e.api.Rename(e.Context(), sandbox.RenameRequest{Ref: "b", Name: "c"}); err != nil {
		e.Fatal(err)
	}
	is("default", "agent", "c")
	is("default", "other", "c")
	if err := e.destroy("c"); err != nil {
		e.Fatal(err)
	}
	e.reopen(false)
	is("default", "agent", "c")
	for i := range 1000 {
		ok("default", fmt.Sprintf("more-%d", i), "a")
	}
	is("default", "other", "")
	is("default", "agent", "")
	is("default", "more-0", "a")
}
