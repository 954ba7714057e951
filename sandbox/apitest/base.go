package apitest

import (
	"snapfs/sandbox"
)

// testBase finds what workspaces stem from.
func testBase(e *env) {
	src := e.mkdir("src")
	e.sh(`cd "$1"; echo one > one; echo two > two`, src)
	e.create("w", src)
	at := e.mount("w")
	e.sh(`echo changed > "$1/one"`, at)
	s := e.snapshot("w", "s")
	e.sh(`echo more > "$1/more"`, at)
	must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Name: "b"}))
	base := func(of ...string) sandbox.BaseResult {
		e.Helper()
		return must[sandbox.BaseResult](e)(e.api.Base(e.Context(), sandbox.BaseRequest{Of: of}))
	}
	changes := func(a, b string) string {
		text := ""
		err := e.api.Diff(e.Context(), sandbox.DiffRequest{A: a, B: b}, func(c sandbox.Change) error {
			if c.Path != "" {
				text += c.Kind + " " + c.Path + "\n"
			}
			return nil
		})
		if err != nil {
			e.Error(err)
		}
		return text
	}
	of := base("w")
	equal(e, "imported from", of.Path, src)
	equal(e, "since the import", changes(of.Snapshot.ID, "w"), "A more\nM one\n")
	equal(e, "of a branch", base("b").Snapshot.ID, of.Snapshot.ID)
	equal(e, "of a snapshot", base("w:s").Snapshot.ID, of.Snapshot.ID)
	both := base("w", "b")
	equal(e, "of two", both.Snapshot.ID, s.ID)
	equal(e, "of two, imported from", both.Path, "")

	conflicts := must[sandbox.ConflictsResult](e)(e.api.Conflicts(e.Context(), sandbox.ConflictsRequest{Base: of.Snapshot.ID, A: "w", B: "b"}))
	equal(e, "conflicts", len(conflicts.Conflicts), 0)
	e.sh(`cd "$1"; echo other > one; echo two > more; rm two`, e.mount("b"))
	e.sh(`echo changed again > "$1/one"`, at)
	conflicts = must[sandbox.ConflictsResult](e)(e.api.Conflicts(e.Context(), sandbox.ConflictsRequest{Base: s.ID, A: "w", B: "b"}))
	paths := ""
	for _, c := range conflicts.Conflicts {
		paths += c.Path + ": " + c.Kind + "\n"
	}
	equal(e, "conflicts", paths, "more: added/added\none: both changed\n")

	e.create("empty", "")
	for _, refs := range [][]string{{"empty"}, {"w", "empty"}, {"nosuch"}} {
		_, err := e.api.Base(e.Context(), sandbox.BaseRequest{Of: refs})
		e.wants(err, sandbox.ErrNotFound)
	}
	_, err := e.api.Base(e.Context(), sandbox.BaseRequest{})
	e.wants(err, sandbox.ErrInvalid)
}

// testContents reads what git would commit of a comparison.
func testContents(e *env) {
	src := e.mkdir("src")
	e.sh(`cd "$1"; seq 5 > text; echo same > same; ln -s text link; echo mode > mode; mkdir d; echo in > d/in; echo gone > gone`, src)
	e.create("w", src)
	e.snapshot("w", "s")
	at := e.mount("w")
	e.sh(`cd "$1"; seq 6 > text; touch same; ln -sfn gone link; chmod +x mode; mv d e; rm gone; : > nothing; mkfifo pipe`, at)
	got := ""
	r := sandbox.DiffRequest{A: "w:s", B: "w", Contents: writer(func(p []byte) { got += string(p) })}
	err := e.api.Diff(e.Context(), r, func(c sandbox.Change) error {
		got += "|" + c.Kind + " " + c.Path + " "
		return nil
	})
	if err != nil {
		e.Error(err)
	}
	equal(e, "contents", got, "|D d/in |A e/in in\n|D gone |M link gone|M mode mode\n|A nothing |A pipe |M text 1\n2\n3\n4\n5\n6\n")
	r.Stat = true
	e.wants(e.api.Diff(e.Context(), r, func(sandbox.Change) error { return nil }), sandbox.ErrInvalid)
}

// writer is a function that is an io.Writer.
type writer func(p []byte)

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
