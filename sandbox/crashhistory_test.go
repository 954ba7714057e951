package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"snapfs/internal/failpoint"
	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// crashRun is a scripted life of a home that does everything that leaves traces on the disk.
type crashRun struct {
	work   string // directory beside the home: sources and mountpoints
	home   string
	points failpoint.Func
	// phase is told what is being done; promise changes the ledger, never at the same time as something looks at it.
	phase   func(name string)
	promise func(func(*ledger))

	h     *sandbox.Home
	ids   map[string]string // of snapshots, by what they are called here
	tree  string            // of workspace w, as it was last seen
	other string            // the tree that the next apply makes of w, or takes back
	made  string            // the workspace that was made last
	count int
}

// crashStep is one call of the API, or a change by a program. It can be repeated after an error.
type crashStep struct {
	phase string
	run   func(ctx context.Context) error
}

// prepare makes what workspaces are created from.
func prepareCrashRun(work string) error {
	script := `mkdir -p "$1/src/sub/deep" "$1/m" "$1/m2"; cd "$1/src"; chmod 751 .; setfattr -n user.who -v root .
		for i in 1 2 3 4 5 6; do seq $i 400 > sub/f$i; done; head -c 300000 /dev/urandom > big; ln sub/f1 sub/deep/hard; ln -s sub/f2 soft
		truncate -s 200000 sparse; mkfifo pipe; chmod 4750 sub/f3; setfattr -n user.a -v b sub/f4; touch -d @1.123456789 sub/f5
		mkdir ../unpacked; cd ../unpacked; tar -C ../src -cf one.tar sub; tar -C ../src -cf two.tar soft sub/deep
		printf '{"os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:%s","sha256:%s"]}}' \
			$(sha256sum one.tar two.tar | cut -c1-64) > config.json
		echo '[{"Config":"config.json","Layers":["one.tar","two.tar"]}]' > manifest.json; tar -cf ../container.tar *`
	return shell(context.Background(), script, work)
}

// shell runs a script with $1: this process serves mounts and must not touch them.
func shell(ctx context.Context, script string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-ec", script, "sh"}, args...)...)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%.40s: %w: %s", script, err, out)
	}
	return nil
}

// steps are the life.
func (r *crashRun) steps() []crashStep {
	r.ids = map[string]string{}
	steps := []crashStep{
		{"open", r.open},
		{"create", r.create},
		{"create of an import", func(ctx context.Context) error {
			r.promise(func(l *ledger) { l.Making = []string{"any"} })
			_, err := r.h.Create(ctx, sandbox.CreateRequest{
				Name: "imported", Source: filepath.Join(r.work, "src"), WaitImported: true,
			})
			return r.settle(err, func(l *ledger) { l.Workspaces["imported"] = nil })
		}},
		{"create of an image", func(ctx context.Context) error {
			r.promise(func(l *ledger) { l.Making = []string{"any"} })
			_, err := r.h.Create(ctx, sandbox.CreateRequest{
				Name: "unpacked", Source: "docker-archive:" + filepath.Join(r.work, "container.tar"),
			})
			return r.settle(err, func(l *ledger) { l.Workspaces["unpacked"] = nil })
		}},
		{"create empty", func(ctx context.Context) error {
			r.promise(func(l *ledger) { l.Making = []string{"any"} })
			_, err := r.h.Create(ctx, sandbox.CreateRequest{Name: "empty"})
			return r.settle(err, func(l *ledger) { l.Workspaces["empty"] = nil })
		}},
		{"mount", r.mount},
		{"write", r.write(`echo one > one; echo more >> sub/f1; rm sub/f2; mv sub/deep moved; chmod 600 sub/f6; chmod 711 .`)},
		{"snapshot", r.snapshot("s1", sandbox.SnapshotRequest{})},
		{"write", r.write(`echo two > two; dd if=/dev/urandom of=big bs=1000 count=20 seek=50 conv=notrunc 2>/dev/null; rm -r moved`)},
		{"store", r.snapshot("s2", sandbox.SnapshotRequest{WaitStored: true})},
		{"snapshot of no change", r.snapshot("s3", sandbox.SnapshotRequest{})},
		{"pause", func(ctx context.Context) error {
			_, err := r.h.Pause(ctx, sandbox.PauseRequest{Workspace: "w"})
			return err
		}},
		{"snapshot paused", r.snapshot("s4", sandbox.SnapshotRequest{Consistent: true})},
		{"resume", func(ctx context.Context) error {
			_, err := r.h.Resume(ctx, sandbox.RefRequest{Ref: "w"})
			return err
		}},
		{"write", r.write(`echo three > one; mkdir new; seq 5000 > new/seq; rm -f sub/f6`)},
		{"rollback", r.rollback("s1")},
		{"write", r.write(`echo four > four; chmod 755 .`)},
		{"snapshot to restore", r.snapshot("s5", sandbox.SnapshotRequest{})},
		{"restore", r.derive("s5", func(ctx context.Context) (sandbox.Workspace, error) {
			return r.h.Restore(ctx, sandbox.RestoreRequest{Snapshot: r.ids["s5"], Mountpoint: filepath.Join(r.work, "m2")})
		})},
		{"unmount", func(ctx context.Context) error {
			return unmount(ctx, r.h, r.made)
		}},
		{"destroy", func(ctx context.Context) error {
			r.promise(func(l *ledger) { l.Going = []string{r.made} })
			_, err := r.h.Destroy(ctx, sandbox.DestroyRequest{Ref: r.made, Now: true})
			return r.settle(err, func(l *ledger) { delete(l.Workspaces, r.made) })
		}},
		{"branch", r.derive("s2", func(ctx context.Context) (sandbox.Workspace, error) {
			return r.h.Branch(ctx, sandbox.RestoreRequest{Snapshot: r.ids["s2"]})
		})},
		{"write", r.write(`echo five > five`)},
		{"fork", r.derive("", func(ctx context.Context) (sandbox.Workspace, error) {
			return r.h.Fork(ctx, sandbox.ForkRequest{Workspace: "w"})
		})},
		{"apply", r.apply("s2", false)},
		{"undo", r.apply("", false)},
		{"apply again", r.apply("s2", true)},
		{"undo again", r.apply("", true)},
	}
	steps = append(steps, r.documentSteps()...)
	steps = append(steps,
		crashStep{"delete", r.dropDocuments(func(ctx context.Context) error {
			return r.delete(ctx, "s2", "s3", "s4")
		}, "one/"+documentA, "two/latest")},
		crashStep{"expire", r.expire})
	// Enough of them for a tier.
	for i := range 16 {
		steps = append(steps, crashStep{"history", func(ctx context.Context) error { return r.grow(ctx, i) }})
	}
	return append(steps,
		crashStep{"merge", func(ctx context.Context) error {
			for i := range 15 {
				if err := r.delete(ctx, fmt.Sprint("h", i)); err != nil {
					return err
				}
			}
			return r.collect(ctx, false)
		}},
		crashStep{"unmount", func(ctx context.Context) error {
			return unmount(ctx, r.h, "w")
		}},
		crashStep{"rollback unmounted", r.rollback("s5")},
		crashStep{"optimize", func(ctx context.Context) error { return r.collect(ctx, true) }},
		crashStep{"close", r.close},
		crashStep{"open again", r.open},
		crashStep{"mount again", r.mount},
		crashStep{"write", r.write(`echo six > six`)},
		crashStep{"snapshot without sync", r.unsynced},
		crashStep{"close mounted", r.close},
	)
}

// unmount ends a mount, also where a namespace that somebody has just made holds a copy of it, and on a slow machine.
func unmount(ctx context.Context, h *sandbox.Home, workspace string) error {
	for end := time.Now().Add(2 * time.Minute); ; {
		_, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: workspace, Force: true})
		if errors.Is(err, sandbox.ErrConflict) {
			return nil // it has ended meanwhile
		}
		if !errors.Is(err, sandbox.ErrUnavailable) || time.Now().After(end) {
			return err
		}
	}
}

// settle ends a call: with an error nothing was done.
func (r *crashRun) settle(err error, done func(*ledger)) error {
	r.promise(func(l *ledger) {
		l.settled()
		if err == nil {
			done(l)
		}
	})
	return err
}

func (r *crashRun) open(ctx context.Context) error {
	h, err := sandbox.Open(ctx, r.home, sandbox.StandOn(sandbox.WithPoints(sandbox.Options{}, r.points)))
	r.h = h
	return err
}

func (r *crashRun) close(context.Context) error { return r.h.Close() }

func (r *crashRun) create(ctx context.Context) error {
	r.promise(func(l *ledger) { l.Making = []string{"any"} })
	_, err := r.h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: filepath.Join(r.work, "src")})
	return r.settle(err, func(l *ledger) { l.Workspaces["w"] = nil })
}

func (r *crashRun) mount(ctx context.Context) error {
	at := filepath.Join(r.work, "m")
	if _, err := r.h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: at}); err != nil {
		return err
	}
	return r.look(ctx)
}

// look notes the tree of w, which nobody changes now.
func (r *crashRun) look(ctx context.Context) error {
	nodes, err := treewalk.WalkApart(ctx, filepath.Join(r.work, "m"))
	if err != nil {
		return err
	}
	r.tree = digest(nodes)
	r.promise(func(l *ledger) {
		l.trees[r.tree] = nodes
		l.Workspaces["w"] = []string{r.tree}
	})
	return nil
}

// write changes w and makes the change durable.
func (r *crashRun) write(script string) func(context.Context) error {
	return func(ctx context.Context) error {
		return r.change(ctx, script+`; find . -type f -o -type d | xargs sync`)
	}
}

// change runs a script that changes w and makes the change durable.
func (r *crashRun) change(ctx context.Context, script string) error {
	r.promise(func(l *ledger) { l.Workspaces["w"] = nil })
	if err := shell(ctx, `cd "$1"; `+script, filepath.Join(r.work, "m")); err != nil {
		return err
	}
	return r.look(ctx)
}

func (r *crashRun) snapshot(as string, s sandbox.SnapshotRequest) func(context.Context) error {
	return func(ctx context.Context) error {
		r.promise(func(l *ledger) { l.Taking = append(l.Taking, r.tree) })
		s.Workspace = "w"
		got, err := r.h.Snapshot(ctx, s)
		if err != nil {
			return err // it may be there all the same: sealed, and not stored
		}
		return r.settle(nil, func(l *ledger) {
			r.ids[as] = got.ID
			l.Snapshots[got.ID] = r.tree
		})
	}
}

// unsynced takes a snapshot that may be lost in a loss of power, with its tree.
func (r *crashRun) unsynced(ctx context.Context) error {
	r.promise(func(l *ledger) { l.Taking, l.Workspaces["w"] = []string{"any"}, nil })
	_, err := r.h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", NoSync: true})
	return err
}

func (r *crashRun) rollback(to string) func(context.Context) error {
	return func(ctx context.Context) error {
		var target string
		r.promise(func(l *ledger) {
			target = l.Snapshots[r.ids[to]]
			l.Workspaces["w"] = []string{r.tree, target}
			l.Taking = append(l.Taking, r.tree) // what was unsaved is kept
		})
		got, err := r.h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: r.ids[to]})
		if err != nil {
			return err
		}
		r.promise(func(l *ledger) {
			if got.Kept != nil {
				l.Snapshots[got.Kept.ID] = r.tree
			}
			l.Workspaces["w"], r.tree = []string{target}, target
		})
		return nil
	}
}

// apply applies a snapshot to w, or with "" takes that back. If the outcome is known, w has one of two trees all the time.
func (r *crashRun) apply(from string, known bool) func(context.Context) error {
	return func(ctx context.Context) error {
		before := r.tree
		r.promise(func(l *ledger) {
			l.Taking = append(l.Taking, before, "any") // both sides of an apply are kept
			if l.Workspaces["w"] = nil; known {
				l.Workspaces["w"] = []string{before, r.other}
			}
		})
		req := sandbox.ApplyRequest{From: r.ids[from], To: "w", Undo: from == ""}
		got, err := r.h.Apply(ctx, req)
		if err == nil && !got.Applied {
			err = fmt.Errorf("nothing was applied: %+v", got)
		}
		if err != nil {
			return err
		}
		if err := r.look(ctx); err != nil {
			return err
		}
		var differs error
		r.promise(func(l *ledger) {
			l.settled()
			if from != "" {
				l.Snapshots[got.Before], l.Snapshots[got.After] = before, r.tree
			}
			if known && alike(l.trees[r.tree]) != r.other {
				differs = errors.New("the apply has another outcome than the first one")
			}
			r.other = alike(l.trees[before])
		})
		return differs
	}
}

// derive makes a workspace of a snapshot, or with "" of w.
func (r *crashRun) derive(of string, make func(context.Context) (sandbox.Workspace, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		tree := r.tree
		r.promise(func(l *ledger) {
			if of != "" {
				tree = l.Snapshots[r.ids[of]]
			}
			l.Making = []string{tree}
		})
		w, err := make(ctx)
		return r.settle(err, func(l *ledger) {
			r.made = w.ID
			l.Workspaces[w.ID] = []string{tree}
		})
	}
}

func (r *crashRun) delete(ctx context.Context, names ...string) error {
	for _, name := range names {
		id := r.ids[name]
		r.promise(func(l *ledger) { l.Going = []string{id} })
		err := r.h.Delete(ctx, sandbox.RefRequest{Ref: id})
		if err := r.settle(err, func(l *ledger) { delete(l.Snapshots, id) }); err != nil {
			return err
		}
	}
	return nil
}

// expire takes a snapshot for a moment and has it deleted.
func (r *crashRun) expire(ctx context.Context) error {
	r.promise(func(l *ledger) { l.Taking = append(l.Taking, r.tree) })
	if _, err := r.h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", TTL: time.Nanosecond}); err != nil {
		return err
	}
	if err := r.collect(ctx, false); err != nil {
		return err
	}
	r.promise((*ledger).settled)
	return nil
}

func (r *crashRun) collect(ctx context.Context, optimize bool) error {
	_, err := r.h.GC(ctx, sandbox.GCRequest{Optimize: optimize})
	return err
}

// grow takes a snapshot of a small change.
func (r *crashRun) grow(ctx context.Context, i int) error {
	r.count++
	if err := r.change(ctx, fmt.Sprintf(`echo %d > n; echo %d > n%d; sync n n%d .`, r.count, i, i, i)); err != nil {
		return err
	}
	return r.snapshot(fmt.Sprint("h", i), sandbox.SnapshotRequest{WaitStored: i%4 == 3})(ctx)
}

// run lives the life to its end.
func (r *crashRun) run(ctx context.Context) error {
	for _, s := range r.steps() {
		r.phase(s.phase)
		if err := s.run(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.phase, err), r.stop())
		}
	}
	return nil
}

// stop ends a life that failed.
func (r *crashRun) stop() error {
	if r.h == nil {
		return nil
	}
	return r.h.Close()
}

// chosen picks one of so many moments of a life: always the same ones for a seed, whatever the order in which they
// come.
func chosen(seed uint64, moment string, one uint64) bool {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", seed, moment) // never fails
	return h.Sum64()%one == 0
}

// removeTree removes what a test made; a mount that is still there is taken away first.
func removeTree(dir string, mountpoints ...string) error {
	for _, m := range mountpoints {
		_ = exec.Command("umount", "-l", m).Run() // usually nothing is there
	}
	return os.RemoveAll(dir)
}
