package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// ledger is what a home has promised, and what it is about to promise. A tree is named by its digest.
type ledger struct {
	Snapshots  map[string]string   // acknowledged, with their trees
	Workspaces map[string][]string // acknowledged, with the trees that they may have; none: any
	Taking     []string            // trees of snapshots that may be there; "any" is any
	Making     []string            // trees of workspaces that may be there
	Going      []string            // snapshots and workspaces that may be gone
	Documents  map[string][]string // what they may hold; see documentAt

	trees map[string][]treewalk.Node // by digest
}

func newLedger() *ledger {
	return &ledger{
		Snapshots: map[string]string{}, Workspaces: map[string][]string{}, Documents: map[string][]string{},
		trees: map[string][]treewalk.Node{},
	}
}

// settled ends what was about to happen.
func (l *ledger) settled() { l.Taking, l.Making, l.Going = nil, nil, nil }

// digest names a tree. What a look at a file changes is no part of it.
func digest(nodes []treewalk.Node) string {
	same := slices.Clone(nodes)
	for i := range same {
		same[i].Atime, same[i].Ctime, same[i].Btime, same[i].Extents = treewalk.Time{}, treewalk.Time{}, treewalk.Time{}, nil
		if same[i].Mode&0o170000 == 0o040000 {
			same[i].Nlink = 0
		}
	}
	text, err := json.Marshal(same)
	if err != nil {
		panic(err) // a Node is plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// alike names a tree with any inode numbers.
func alike(nodes []treewalk.Node) string {
	same := slices.Clone(nodes)
	for i := range same {
		same[i].Ino = 0
	}
	return "alike " + digest(same)
}

// verifier compares a home that a crash left with a ledger.
type verifier struct {
	t      *testing.T
	home   string
	at     string // an empty directory, to mount workspaces on
	ledger *ledger
	most   int // snapshots and workspaces whose trees are looked at, each; 0 is all
}

// verify opens the home, looks at everything it promised, and then deletes all: nothing may be left.
func (v *verifier) verify(ctx context.Context) {
	t := v.t
	t.Helper()
	h, err := sandbox.Open(ctx, v.home, sandbox.Options{})
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if left, err := os.ReadDir(filepath.Join(v.home, "lost+found")); err != nil || len(left) > 0 {
		t.Errorf("lost+found: %v, %v", left, err)
	}
	v.check(ctx, h, "after the crash")
	all := sandbox.Access{AllowCrossSession: true}
	snapshots, err := h.Snapshots(ctx, sandbox.ListRequest{Access: all})
	if err != nil {
		t.Error(err)
	}
	workspaces, err := h.Workspaces(ctx, sandbox.ListRequest{Access: all})
	if err != nil {
		t.Error(err)
	}
	v.present(snapshots.Snapshots, workspaces.Workspaces)
	v.documents(ctx, h)
	if t.Failed() {
		return
	}
	for i, w := range workspaces.Workspaces {
		if v.most > 0 && i >= v.most {
			break
		}
		want, known := v.ledger.Workspaces[w.ID]
		if !known {
			want = v.ledger.Making
		}
		v.tree(ctx, h, w.ID, "workspace "+w.ID, want)
	}
	slices.Reverse(snapshots.Snapshots) // the newest have most to lose
	for i, s := range snapshots.Snapshots {
		if v.most > 0 && i >= v.most {
			break
		}
		want := v.ledger.Taking
		if known, ok := v.ledger.Snapshots[s.ID]; ok {
			want = []string{known}
		}
		if s.ExpiresAt != nil {
			continue // past its time
		}
		w, err := h.Restore(ctx, sandbox.RestoreRequest{Snapshot: s.ID})
		if err != nil {
			t.Errorf("restore of snapshot %s: %v", s.ID, err)
			continue
		}
		v.tree(ctx, h, w.ID, "snapshot "+s.ID, want)
		if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: w.ID, Now: true}); err != nil {
			t.Error(err)
		}
	}
	v.goesOn(ctx, h)
	v.nothingLeaks(ctx, h)
}

func (v *verifier) check(ctx context.Context, h *sandbox.Home, when string) {
	v.t.Helper()
	res, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true})
	if err != nil || len(res.Problems) > 0 {
		v.t.Errorf("check %s: %v, %+v", when, err, res.Problems)
	}
}

// present compares what is there with what was promised.
func (v *verifier) present(snapshots []sandbox.Snapshot, workspaces []sandbox.Workspace) {
	v.t.Helper()
	found := map[string]bool{}
	for _, s := range snapshots {
		found[s.ID] = true
		if _, ok := v.ledger.Snapshots[s.ID]; !ok && len(v.ledger.Taking) == 0 {
			v.t.Errorf("snapshot %s %q was never taken, or is deleted", s.ID, s.Name)
		}
	}
	for _, w := range workspaces {
		found[w.ID] = true
		if _, ok := v.ledger.Workspaces[w.ID]; !ok && len(v.ledger.Making) == 0 {
			v.t.Errorf("workspace %s was never made, or is destroyed", w.ID)
		}
	}
	for _, id := range slices.Concat(slices.Collect(maps.Keys(v.ledger.Snapshots)), slices.Collect(maps.Keys(v.ledger.Workspaces))) {
		if !found[id] && !slices.Contains(v.ledger.Going, id) {
			v.t.Errorf("%s is lost", id)
		}
	}
}

// tree mounts a workspace and compares it with the trees that it may have; none, or "any": any.
func (v *verifier) tree(ctx context.Context, h *sandbox.Home, workspace, what string, want []string) {
	v.t.Helper()
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: workspace, Mountpoint: v.at}); err != nil {
		v.t.Errorf("%s: %v", what, err)
		return
	}
	nodes, err := treewalk.WalkApart(ctx, v.at)
	if err != nil {
		v.t.Errorf("%s: %v", what, err)
	}
	if err := unmount(ctx, h, workspace); err != nil {
		v.t.Errorf("%s: %v", what, err)
	}
	if got := digest(nodes); len(want) > 0 && !slices.Contains(want, got) && !slices.Contains(want, alike(nodes)) && !slices.Contains(want, "any") {
		v.t.Errorf("%s has a tree that it never had:\n%v", what, treewalk.Diff(v.ledger.trees[want[len(want)-1]], nodes,
			treewalk.Options{Ino: true, IgnoreExtents: true}))
	}
}

// goesOn uses the home as if nothing had happened.
func (v *verifier) goesOn(ctx context.Context, h *sandbox.Home) {
	v.t.Helper()
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "after"}); err != nil {
		v.t.Errorf("create after the crash: %v", err)
		return
	}
	if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "after", WaitStored: true}); err != nil {
		v.t.Errorf("snapshot after the crash: %v", err)
	}
	if err := h.Settle(ctx); err != nil {
		v.t.Errorf("storing what was sealed: %v", err)
	}
	left, err := h.Leftovers(ctx)
	if err != nil || len(left) > 0 {
		v.t.Errorf("left over by the crash: %v, %v", left, err)
	}
	v.check(ctx, h, "when all is stored")
}

// nothingLeaks deletes all: no directory and no byte may be left.
func (v *verifier) nothingLeaks(ctx context.Context, h *sandbox.Home) {
	t := v.t
	t.Helper()
	snapshots, err := h.Snapshots(ctx, sandbox.ListRequest{})
	if err != nil {
		t.Error(err)
	}
	for _, s := range snapshots.Snapshots {
		if err := h.Delete(ctx, sandbox.RefRequest{Ref: s.ID}); err != nil {
			t.Error(err)
		}
	}
	workspaces, err := h.Workspaces(ctx, sandbox.ListRequest{})
	if err != nil {
		t.Error(err)
	}
	for _, w := range workspaces.Workspaces {
		if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: w.ID, Now: true}); err != nil {
			t.Error(err)
		}
	}
	v.dropAllDocuments(ctx, h)
	if _, err := h.GC(ctx, sandbox.GCRequest{}); err != nil {
		t.Errorf("collecting all: %v", err)
	}
	// An explicit collection has waited for the directories. What is kept ready for the next call goes with the home.
	left, err := h.Leftovers(ctx)
	if err != nil || len(left) > 0 {
		t.Errorf("left over when all is gone: %v, %v", left, err)
	}
	st, err := h.Store(ctx)
	if err != nil || st.Manifests != 0 || st.Chunks != 0 || st.Payload != 0 || st.Garbage != 0 {
		t.Errorf("left in the store: %+v, %v", st, err)
	}
}

// decode reads what encode wrote.
func (l *ledger) decode(line []byte) error {
	var now ledger
	if err := json.Unmarshal(line, &now); err != nil {
		return fmt.Errorf("ledger %.100s: %w", line, err)
	}
	now.trees = l.trees
	*l = now
	return nil
}

// encode makes a line of the ledger, without the trees.
func (l *ledger) encode() []byte {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(l); err != nil {
		panic(err) // plain data
	}
	return b.Bytes()
}
