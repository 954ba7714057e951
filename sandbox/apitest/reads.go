package apitest

import (
	"snapfs/sandbox"
)

// testReads has an apply tell and refuse what programs have read and the target has changed, and lists reads.
func testReads(e *env) {
	src := e.mkdir("src")
	e.sh(`cd "$1"; mkdir dir; seq 9 > a; seq 9 > b; seq 9 > dir/x; printf x > "$(printf 'raw\377')"`, src)
	e.create("w", src)
	e.snapshot("w", "base")
	at := e.mkdir("try")
	must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{
		Snapshot: "w:base", Name: "try", Mountpoint: at, MountOptions: sandbox.MountOptions{TrackReads: true},
	}))
	e.sh(`cd "$1"; cat a raw* > /dev/null; ls dir > /dev/null; echo more >> b`, at)
	kinds := map[string][]string{}
	list := func() sandbox.ReadsResult {
		got, err := e.api.Reads(e.Context(), sandbox.RefRequest{Ref: "try"}, func(r sandbox.Read) error {
			kinds[r.Path] = r.Kinds
			return nil
		})
		if err != nil {
			e.Fatal(err)
		}
		return got
	}
	got := list()
	equal(e, "tracked", got.Tracked, true)
	equal(e, "gaps", len(got.Gaps), 0)
	equal(e, "a name that is not UTF-8", kinds["raw\xff"][0], "content")
	equal(e, "a listing", kinds["dir"][0], "listing")

	e.sh(`cd "$1"; echo first > a.new; cat a >> a.new; mv a.new a; touch dir/new`, e.mount("w"))
	stale := func(r sandbox.ApplyRequest, applied bool) {
		e.Helper()
		r.From = "try"
		res := must[sandbox.ApplyResult](e)(e.api.Apply(e.Context(), r))
		equal(e, "applied", res.Applied, applied)
		equal(e, "stale reads", len(res.StaleReads), 2)
		equal(e, "the first", res.StaleReads[0].Path, "a")
		equal(e, "the second", res.StaleReads[1].Kinds[0], "listing")
		equal(e, "whose", res.StaleReads[0].Workspace, "try")
	}
	stale(sandbox.ApplyRequest{DryRun: true}, false)
	stale(sandbox.ApplyRequest{Serializable: true}, false)
	stale(sandbox.ApplyRequest{}, true)

	res, err := e.api.Reads(e.Context(), sandbox.RefRequest{Ref: "w"}, func(sandbox.Read) error { return nil })
	if err != nil || res.Tracked || len(res.Gaps) != 1 {
		e.Errorf("reads of a workspace that tracks none: %+v, %v", res, err)
	}
	_, err = e.api.Reads(e.Context(), sandbox.RefRequest{Ref: "none"}, nil)
	e.wants(err, sandbox.ErrNotFound, "none")
}
