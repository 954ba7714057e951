package apitest

import (
	"os"
	"path/filepath"

	"snapfs/sandbox"
)

// testUp asks for a workspace by its name through all that can happen to it.
func testUp(e *env) {
	up := func(want sandbox.Resumption, r sandbox.UpRequest) {
		e.Helper()
		r.Name = "w"
		res := must[sandbox.UpResult](e)(e.api.Up(e.Context(), r))
		equal(e, "how", res.How, want)
		equal(e, "id", res.ID, "w")
	}
	up(sandbox.Fresh, sandbox.UpRequest{})
	at := e.mount("w")
	e.sh(`echo one > "$1/f"`, at)
	up(sandbox.Same, sandbox.UpRequest{})
	e.stored("w", "s")
	e.sh(`echo two > "$1/f"`, at)
	e.unmount("w")
	up(sandbox.Same, sandbox.UpRequest{})
	equal(e, "not mounted, the same", e.sh(`cat "$1/f"`, e.mount("w")), "two")
	e.unmount("w")

	// A source is that of the workspace, or a mistake.
	src := e.mkdir("src")
	from := func(name, source string) error {
		_, err := e.api.Up(e.Context(), sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Name: name, Source: source}})
		return err
	}
	e.wants(from("w", src), sandbox.ErrConflict, "made from nothing", src)
	for range 2 {
		if err := from("v", src); err != nil {
			e.Error(err)
		}
	}
	e.wants(from("v", e.mkdir("other")), sandbox.ErrConflict, src, "other")
	e.sh(`rmdir "$1"`, src)
	if err := from("v", src); err != nil {
		e.Errorf("its source is gone: %v", err)
	}

	unrelated := sandbox.Access{Session: "unrelated"}
	_, err := e.api.Up(e.Context(), sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Access: unrelated, Name: "w"}})
	e.wants(err, sandbox.ErrRefused)
	_, err = e.api.Up(e.Context(), sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Name: "a b"}})
	e.wants(err, sandbox.ErrInvalid)

	// Its upper is lost.
	dirs, err := filepath.Glob(filepath.Join(e.home, "uppers/*"))
	if err != nil || len(dirs) == 0 {
		e.Fatal(dirs, err)
	}
	for _, d := range dirs {
		if err := os.RemoveAll(filepath.Join(d, "upper")); err != nil {
			e.Fatal(err)
		}
	}
	up(sandbox.Restored, sandbox.UpRequest{})
	equal(e, "restored", e.sh(`cat "$1/f"`, e.mount("w")), "one")
	e.unmount("w")

	// It is gone.
	if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: "w", Now: true}); err != nil {
		e.Fatal(err)
	}
	up(sandbox.Restored, sandbox.UpRequest{})
	equal(e, "restored", e.sh(`cat "$1/f"`, e.mount("w")), "one")
}
