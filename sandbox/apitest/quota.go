package apitest

import (
	"fmt"
	"path/filepath"
	"strings"

	"snapfs/sandbox"
)

// testQuota fills workspaces with limits by programs, beside one that has none, and gets room back in all ways.
func testQuota(e *env) {
	const size = 8 << 20
	_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: "w", Quota: sandbox.Quota{Size: -1}})
	e.wants(err, sandbox.ErrInvalid, "negative")
	w := must[sandbox.Workspace](e)(e.api.Create(e.Context(), sandbox.CreateRequest{
		Name: "w", Quota: sandbox.Quota{Size: size, Inodes: 100},
	}))
	equal(e, "limits", w.Quota.Quota, sandbox.Quota{Size: size, Inodes: 100})
	at, beside := e.mount("w"), e.up("beside")
	fill := `LC_ALL=C dd if=/dev/urandom of="$1/$2" bs=100k count=1000 2>&1 | grep -o "No space left on device"`
	full := func(at, name string) {
		e.Helper()
		equal(e, "it gets full", e.sh(fill, at, name), "No space left on device")
	}
	used := func(when string, least, most int64) {
		e.Helper()
		if q := e.show("w").Quota; q.Used < least || q.Used > most || q.Counting {
			e.Errorf("%s: %d bytes are used, counting %v; want %d to %d", when, q.Used, q.Counting, least, most)
		}
	}
	// The room of a file without a name is there when the kernel has forgotten it, which is right after it was removed.
	room := func(when string, most int64) {
		e.Helper()
		e.eventually(when, func() bool { q := e.show("w").Quota; return q.Used <= most && !q.Counting })
	}
	const little = 64 << 10
	full(at, "big")
	used("full", size-little, size)
	equal(e, "df", e.sh(`df --block-size=1 --output=size,avail "$1" | tail -n 1 | xargs`, at), fmt.Sprintf("%d 0", size))
	e.sh(`head -c 20000000 /dev/zero > "$1/f"; ls > "$1/g"`, beside)
	e.sh(`dd if=/dev/zero of="$1/big" bs=100k count=10 conv=notrunc 2> /dev/null; chmod 600 "$1/big"; mv "$1/big" "$1/moved"; rm "$1/moved"`, at)
	room("removed", little)
	e.sh(`truncate -s 1G "$1/sparse"; echo x >> "$1/sparse"; ln "$1/sparse" "$1/link"`, at)
	used("a sparse file", 0, 2*little)
	equal(e, "inodes", e.show("w").Quota.UsedInodes, 2)
	equal(e, "many files", e.sh(`i=0; while touch "$1/n$i" 2> /dev/null; do i=$((i+1)); done; echo $i`, at), "98")
	equal(e, "df -i", e.sh(`df --output=itotal,iavail "$1" | tail -n 1 | xargs`, at), "100 0")
	e.sh(`rm "$1"/n* "$1/sparse" "$1/link"`, at)
	e.eventually("no file is there", func() bool { return e.show("w").Quota.UsedInodes <= 1 })

	// What is frozen counts until nothing needs it.
	e.sh(`head -c 5000000 /dev/urandom > "$1/frozen"`, at)
	e.stored("w", "s")
	e.eventually("it counts as it is stored", func() bool {
		q := e.show("w").Quota
		return q.Used > 4_900_000 && q.Used < 5_200_000
	})
	full(at, "more")
	e.snapshot("w", "of-a-full-one")
	e.sh(`rm "$1/more"`, at)
	must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: "s", Discard: true}))
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: "w:of-a-full-one"}); err != nil {
		e.Fatal(err)
	}
	e.eventually("the room of what is deleted is free", func() bool { return e.show("w").Quota.Used < 5_200_000 })
	branch := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{
		Snapshot: "w:s", Name: "branch", Quota: sandbox.Quota{Size: little},
	}))
	e.eventually("what a branch needs, too, counts for nobody", func() bool { return e.show("w").Quota.Used < little })
	full(e.mount(branch.ID), "f")
	if _, err := e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: branch.ID}); err != nil {
		e.Fatal(err)
	}
	if err := e.destroy(branch.ID); err != nil {
		e.Fatal(err)
	}
	fork := must[sandbox.Workspace](e)(e.api.Fork(e.Context(), sandbox.ForkRequest{
		Workspace: "w", Name: "fork", Quota: sandbox.Quota{Inodes: 5},
	}))
	equal(e, "limits of a fork", fork.Quota.Quota, sandbox.Quota{Inodes: 5})

	// Limits change, and stay with the record.
	limits := func(size, inodes int64) {
		e.Helper()
		w := must[sandbox.Workspace](e)(e.api.SetQuota(e.Context(), sandbox.QuotaRequest{
			Workspace: "w", Size: &size, Inodes: &inodes,
		}))
		if size == 0 && inodes == 0 {
			equal(e, "no limits", w.Quota == nil, true)
			return
		}
		equal(e, "changed limits", w.Quota.Quota, sandbox.Quota{Size: size, Inodes: inodes})
	}
	limits(1<<20, 0)
	equal(e, "less than there is", e.sh(`(echo x > "$1/x") 2>&1 | grep -c "No space" || :`, at), "0")
	e.sh(`rm -f "$1/x"`, at)
	if err := e.destroy(fork.ID); err != nil {
		e.Fatal(err)
	}
	e.eventually("less than there is", func() bool {
		out := e.sh(`{ head -c 100000 /dev/zero > "$1/x"; } 2>&1 || :`, at)
		return strings.Contains(out, "No space")
	})
	limits(0, 0)
	e.sh(`head -c 20000000 /dev/urandom > "$1/x"`, at)
	limits(30<<20, 50)
	used("counted from now on", 24_900_000, 25_200_000)
	full(at, "y")
	e.sh(`rm "$1/y"`, at)
	room("removed from a full one", 25_200_000)
	must[sandbox.Object](e)(e.api.Rename(e.Context(), sandbox.RenameRequest{Ref: "w", Name: "v"}))
	full(at, "y")
	must[sandbox.Object](e)(e.api.Rename(e.Context(), sandbox.RenameRequest{Ref: "v", Name: "w"}))
	e.reopen(true)
	equal(e, "opened again", e.show("w").Quota.Quota, sandbox.Quota{Size: 30 << 20, Inodes: 50})
	e.eventually("opened again", func() bool { q := e.show("w").Quota; return q.Used > 29<<20 && q.Used <= 30<<20 && !q.Counting })
	at = filepath.Join(e.dir, "mnt", "w")
	if p := e.show("w").Mountpoint; p != "" {
		at = p
	}
	equal(e, "it is full still", e.sh(`(head -c 1000000 /dev/zero > "$1/z") 2>&1 | grep -c "No space" || :`, at), "1")
	got := must[sandbox.UpResult](e)(e.api.Up(e.Context(), sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{
		Name: "w", Quota: sandbox.Quota{Size: 40 << 20},
	}}))
	equal(e, "limits of what is there", got.Quota.Quota, sandbox.Quota{Size: 40 << 20})
	e.sh(`head -c 1000000 /dev/zero > "$1/z"`, at)
	must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{Ref: "w"}))
}
