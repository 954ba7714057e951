package apitest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// Opener opens the service of a home directory that may or may not exist. Closing what it gives ends the service: the
// home is free and nothing is mounted any more. With remount, what was mounted when the service ended last is mounted
// again.
type Opener func(t *testing.T, home string, remount bool) sandbox.API

// raceEnabled says that the race detector is on, under which what handles very many bytes takes several times as long.
var raceEnabled bool

// shellTime bounds every child process, and every wait.
const shellTime = 2 * time.Minute

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	for _, test := range []struct {
		name string
		run  func(*env)
	}{
		{"CreateEmpty", testCreateEmpty},
		{"CreateNames", testCreateNames},
		{"CreateFromDirectory", testCreateFromDirectory},
		{"CreateFromImage", testCreateFromImage},
		{"CreateFromSnapshot", testCreateFromSnapshot},
		{"CreateRefuses", testCreateRefuses},
		{"Foreign", testForeign},
		{"MountTwice", testMountTwice},
		{"MountRefuses", testMountRefuses},
		{"MountReadOnly", testMountReadOnly},
		{"MountSnapshot", testMountSnapshot},
		{"UnmountBusy", testUnmountBusy},
		{"UnmountElsewhere", testUnmountElsewhere},
		{"Detached", testDetached},
		{"SnapshotReverts", testSnapshotReverts},
		{"SnapshotWhileOpen", testSnapshotWhileOpen},
		{"SnapshotUnmounted", testSnapshotUnmounted},
		{"SnapshotUnchanged", testSnapshotUnchanged},
		{"SnapshotFields", testSnapshotFields},
		{"Fidelity", testFidelity},
		{"Isolation", testIsolation},
		{"DerivedNames", testDerivedNames},
		{"BranchUndone", testBranchUndone},
		{"Fork", testFork},
		{"Rollback", testRollback},
		{"RollbackOpen", testRollbackOpen},
		{"RollbackRefuses", testRollbackRefuses},
		{"RollbackKeeps", testRollbackKeeps},
		{"RollbackForeign", testRollbackForeign},
		{"RollbackHistory", testRollbackHistory},
		{"Turns", testTurns},
		{"TurnsApart", testTurnsApart},
		{"Apply", testApply},
		{"ApplyConflicts", testApplyConflicts},
		{"ApplyRefuses", testApplyRefuses},
		{"Reads", testReads},
		{"Base", testBase},
		{"Contents", testContents},
		{"Positions", testPositions},
		{"Pause", testPause},
		{"Quota", testQuota},
		{"Up", testUp},
		{"References", testReferences},
		{"Names", testNames},
		{"NamesRefused", testNamesRefused},
		{"NamesGiven", testNamesGiven},
		{"NamesRead", testNamesRead},
		{"Places", testPlaces},
		{"Rename", testRename},
		{"Labels", testLabels},
		{"Refs", testRefs},
		{"Sessions", testSessions},
		{"Lists", testLists},
		{"Delete", testDelete},
		{"Destroy", testDestroy},
		{"DestroyKeeps", testDestroyKeeps},
		{"Expiry", testExpiry},
		{"Prune", testPrune},
		{"PruneStays", testPruneStays},
		{"Follow", testFollow},
		{"Documents", testDocuments},
		{"DocumentsRefuse", testDocumentsRefuse},
		{"DocumentsLarge", testDocumentsLarge},
		{"DocumentsTied", testDocumentsTied},
		{"DocumentsBounded", testDocumentsBounded},
		{"DocumentsOfOthers", testDocumentsOfOthers},
		{"DocumentsGrow", testDocumentsGrow},
		{"Diff", testDiff},
		{"DiffEmpty", testDiffEmpty},
		{"DiffPatch", testDiffPatch},
		{"DiffRandom", testDiffRandom},
		{"Export", testExport},
		{"ExportRefuses", testExportRefuses},
		{"Backup", testBackup},
		{"BackupRefuses", testBackupRefuses},
		{"Extract", testExtract},
		{"ExtractRefuses", testExtractRefuses},
		{"Stats", testStats},
		{"StatsExact", testStatsExact},
		{"StatsOfSession", testStatsOfSession},
		{"CollectAndCheck", testCollectAndCheck},
		{"Cancelled", testCancelled},
		{"CancelledMidway", testCancelledMidway},
		{"MountOfService", testMountOfService},
		{"FilesUsed", testFilesUsed},
		{"FilesPut", testFilesPut},
		{"FilesEdit", testFilesEdit},
		{"FilesSearched", testFilesSearched},
		{"FilesWatched", testFilesWatched},
		{"FilesRefuse", testFilesRefuse},
		{"FilesScoped", testFilesScoped},
		{"Restart", testRestart},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Not t.TempDir: its clean-up must run after the mounts are gone.
			dir, err := os.MkdirTemp("", "snapfs-api-")
			if err != nil {
				t.Fatal(err)
			}
			e := &env{T: t, dir: dir, home: filepath.Join(dir, "home"), opener: open}
			t.Cleanup(e.end)
			e.api = open(t, e.home, false)
			test.run(e)
		})
	}
}

// env is the surroundings of one test.
type env struct {
	*testing.T
	api sandbox.API

	dir    string // everything of the test is in it
	home   string
	opener Opener
}

// end closes the service and fails on anything it left mounted.
func (e *env) end() {
	if err := e.api.Close(); err != nil {
		e.Errorf("close: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		e.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, e.dir) {
			e.Errorf("left mounted: %s", line)
			// Never walk into it.
			return
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		e.Error(err)
	}
}

// reopen ends the service and starts it again on the same home.
func (e *env) reopen(remount bool) {
	e.Helper()
	if err := e.api.Close(); err != nil {
		e.Errorf("close: %v", err)
	}
	e.api = e.opener(e.T, e.home, remount)
}

// mkdir makes a directory of the test.
func (e *env) mkdir(name string) string {
	e.Helper()
	path := filepath.Join(e.dir, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		e.Fatal(err)
	}
	return path
}

// sh runs a script in a process of its own, with args as $1, …, and gives its output without the last newline.
func (e *env) sh(script string, args ...string) string {
	e.Helper()
	out, err := shell(e.Context(), script, args...)
	if err != nil {
		e.Fatalf("%s %q: %v\n%s", script, args, err, out)
	}
	return out
}

func shell(ctx context.Context, script string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, shellTime)
	defer cancel()
	// No working directory in a mount: between fork and exec that would block a thread that the runtime waits for.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSuffix(string(out), "\n"), err
}

// walk lists a tree in a process of its own.
func (e *env) walk(dir string) []treewalk.Node {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), shellTime)
	defer cancel()
	nodes, err := treewalk.WalkApart(ctx, dir)
	if err != nil {
		e.Fatal(err)
	}
	return nodes
}

// same fails if two listings differ.
func (e *env) same(what string, got, want []treewalk.Node, opts treewalk.Options) {
	e.Helper()
	if d := treewalk.Diff(want, got, opts); len(d) > 0 {
		e.Errorf("%s: %d differences (want != got):\n%s", what, len(d), strings.Join(d[:min(len(d), 20)], "\n"))
	}
}

// must stops the test on an error.
func must[T any](e *env) func(T, error) T {
	return func(v T, err error) T {
		e.Helper()
		if err != nil {
			e.Fatal(err)
		}
		return v
	}
}

// create makes a workspace.
func (e *env) create(name, source string) sandbox.Workspace {
	e.Helper()
	return must[sandbox.Workspace](e)(e.api.Create(e.Context(), sandbox.CreateRequest{Name: name, Source: source}))
}

// mount mounts a workspace at a new directory named like it.
func (e *env) mount(name string) string {
	e.Helper()
	at := filepath.Join(e.dir, "mnt-"+name)
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: name, Mountpoint: at, MakeMountpoint: true}))
	return at
}

func (e *env) unmount(name string) {
	e.Helper()
	must[sandbox.Workspace](e)(e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: name}))
}

// up creates an empty workspace and mounts it.
func (e *env) up(name string) string {
	e.Helper()
	e.create(name, "")
	return e.mount(name)
}

// destroy destroys a workspace and keeps nothing.
func (e *env) destroy(name string) error {
	_, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: name, Now: true})
	return err
}

func (e *env) snapshot(workspace, name string) sandbox.Snapshot {
	e.Helper()
	return must[sandbox.Snapshot](e)(e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: workspace, Name: name}))
}

// stored takes a snapshot and waits until it is in the store.
func (e *env) stored(workspace, name string) sandbox.Snapshot {
	e.Helper()
	return must[sandbox.Snapshot](e)(e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: workspace, Name: name, WaitStored: true}))
}

// restore makes a workspace of a snapshot and mounts it; the mountpoint is a new directory.
func (e *env) restore(snapshot string) (sandbox.Workspace, string) {
	e.Helper()
	at, err := os.MkdirTemp(e.dir, "restored-")
	if err != nil {
		e.Fatal(err)
	}
	w := must[sandbox.Workspace](e)(e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: snapshot, Mountpoint: at}))
	return w, at
}

// show describes a workspace.
func (e *env) show(name string) sandbox.Workspace {
	e.Helper()
	o := must[sandbox.Object](e)(e.api.Show(e.Context(), sandbox.RefRequest{Ref: name}))
	if o.Workspace == nil || o.Snapshot != nil {
		e.Fatalf("show %s: got %+v, want a workspace", name, o)
	}
	return *o.Workspace
}

// wants fails unless err is of a class and says every one of the words.
func (e *env) wants(err, class error, words ...string) {
	e.Helper()
	if !errors.Is(err, class) {
		e.Errorf("got error %v, want class %v", err, class)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			e.Errorf("error %q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		e.Errorf("error %q is more than one line", err)
	}
}

// equal fails unless got is want.
func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// eventually waits for something that another process or a goroutine brings about.
func (e *env) eventually(what string, done func() bool) {
	e.Helper()
	for end := time.Now().Add(shellTime); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("%s: not within %v", what, shellTime)
		}
	}
}
