package sandbox_test

import (
	"context"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/caller"
)

// TestTokensMakeNoSetuid: who has a token makes no program that runs as root for a user of the machine, neither a new one
// nor of one that is there.
func TestTokensMakeNoSetuid(t *testing.T) {
	h := filesHome(t, "w")
	session, err := sandbox.Access{}.SessionID()
	if err != nil {
		t.Fatal(err)
	}
	remote := caller.With(t.Context(), &caller.Caller{Session: session, Sessions: []string{session}, Token: "t"})
	put := func(ctx context.Context, path string) uint32 {
		t.Helper()
		r := sandbox.PutFileRequest{WorkFileRequest: fileIn("w", path), Mode: 0o6755, Size: -1}
		f, err := h.PutFile(ctx, r, strings.NewReader("#!/bin/sh\n"))
		if err != nil {
			t.Fatal(err)
		}
		return f.Mode & 0o7777
	}
	for _, tc := range []struct {
		what string
		got  uint32
		want uint32
	}{
		{"by the program itself", put(t.Context(), "own"), 0o6755},
		{"with a token", put(remote, "new"), 0o755},
		{"with a token, of one that is there", put(remote, "own"), 0o755},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: mode %o, want %o", tc.what, tc.got, tc.want)
		}
	}
	put(t.Context(), "other")
	edit := sandbox.EditFileRequest{WorkFileRequest: fileIn("w", "other"), Old: "sh", New: "true"}
	if done, err := h.EditFile(remote, edit); err != nil || done.File.Mode&0o7777 != 0o755 {
		t.Errorf("edited: mode %o, %v", done.File.Mode, err)
	}
}
