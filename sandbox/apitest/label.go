package apitest

import (
	"fmt"
	"maps"
	"strings"

	"snapfs/sandbox"
)

// testLabels puts labels on workspaces: they are the workspace's own, and outlive the service.
func testLabels(e *env) {
	ctx := e.Context()
	many := sandbox.Labels{}
	for i := range 33 {
		many[fmt.Sprintf("k%d", i)] = ""
	}
	for _, bad := range []sandbox.Labels{
		many, {"": "x"}, {"Upper": "x"}, {"k": strings.Repeat("x", 513)}, {"k": "a\nb"}, {"k": "\xff"}, {"-k": "x"},
	} {
		_, err := e.api.Create(ctx, sandbox.CreateRequest{Name: "w", Labels: bad})
		e.wants(err, sandbox.ErrInvalid)
	}
	w, err := e.api.Create(ctx, sandbox.CreateRequest{Name: "w", Labels: sandbox.Labels{"a": "1", "b/c": "ä b"}})
	if err != nil {
		e.Fatal(err)
	}
	same := func(got, want sandbox.Labels) {
		e.Helper()
		if !maps.Equal(got, want) {
			e.Errorf("got labels %v, want %v", got, want)
		}
	}
	same(w.Labels, sandbox.Labels{"a": "1", "b/c": "ä b"})
	w, err = e.api.Label(ctx, sandbox.LabelRequest{
		Workspace: "w", Put: sandbox.Labels{"a": "2", "d": ""}, Remove: []string{"b/c", "none"},
	})
	if err != nil {
		e.Fatal(err)
	}
	same(w.Labels, sandbox.Labels{"a": "2", "d": ""})
	_, err = e.api.Label(ctx, sandbox.LabelRequest{Workspace: "w", Put: many})
	e.wants(err, sandbox.ErrInvalid)
	_, err = e.api.Label(ctx, sandbox.LabelRequest{Workspace: "none"})
	e.wants(err, sandbox.ErrNotFound)
	_, err = e.api.Label(ctx, sandbox.LabelRequest{Access: sandbox.Access{Session: "else"}, Workspace: "w"})
	e.wants(err, sandbox.ErrRefused)

	s := e.snapshot("w", "s")
	fork, err := e.api.Fork(ctx, sandbox.ForkRequest{Workspace: "w", Labels: sandbox.Labels{"f": "x"}})
	if err != nil {
		e.Fatal(err)
	}
	same(fork.Labels, sandbox.Labels{"f": "x"})
	branch, err := e.api.Branch(ctx, sandbox.RestoreRequest{Snapshot: s.ID})
	if err != nil {
		e.Fatal(err)
	}
	same(branch.Labels, nil)
	if _, err := e.api.Rename(ctx, sandbox.RenameRequest{Ref: "w", Name: "v"}); err != nil {
		e.Fatal(err)
	}
	e.reopen(false)
	same(e.show("v").Labels, sandbox.Labels{"a": "2", "d": ""})
	same(e.show(fork.ID).Labels, sandbox.Labels{"f": "x"})
}
