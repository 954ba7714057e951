package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// run runs a command without an engine.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	return Program{Version: "test"}.run(args, in, out, errOut)
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("no class"), 1},
		{context.DeadlineExceeded, 1},
		{usagef("missing NAME"), 2},
		{fmt.Errorf("workspace: %w", api.ErrInvalid), 2},
		{fmt.Errorf("workspace: %w", api.ErrNotFound), 3},
		{errors.Join(fmt.Errorf("x: %w", api.ErrConflict), nil), 4},
		{api.ErrRefused, 5},
		{api.ErrCorrupt, 6},
		{failure(api.ErrUnavailable, "no daemon"), 7},
		{fmt.Errorf("%w; nothing was changed", interrupted{unix.SIGINT}), 130},
		{codeError{errSilent, 42}, 42},
		{startError{ready{Error: "held", Code: 4}}, 4},
	} {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("exitCode(%v) = %d, want %d", test.err, got, test.want)
		}
	}
}

// TestCommandLine runs lines that need no daemon.
func TestCommandLine(t *testing.T) {
	missing := t.TempDir() + "/none"
	for _, test := range []struct {
		args     string
		code     int
		out, err string
	}{
		{"--version", 0, "snapfs ", ""},
		{"version", 0, "snapfs ", ""},
		{"completion bash", 0, "complete", ""},
		{"completion nosh", 2, "", `shell "nosh"`},
		{"nosuch", 2, "", "unknown verb \"nosuch\"; 'snapfs help' lists the verbs"},
		{"snapsot x", 2, "", "did you mean snapshot, snapshots?"},
		{"clone x", 2, "", "did you mean branch, fork?"},
		{"rm x", 2, "", "did you mean delete, destroy?"},
		{"unmount x", 2, "", "did you mean umount?"},
		{"list --jsno --json", 2, "", `"error":"unknown flag: --jsno`},
		{"export s x.tar", 2, "", "--format squashfs"},
		{"cp s:/f nosuchdir/", 3, "", "nosuchdir does not exist"},
		{"help", 0, "Verbs:", ""},
		{"help create", 0, "snapfs create", ""},
		{"help nosuch", 2, "", "unknown verb"},
		{"help create x", 2, "", `unexpected argument "x"; usage: snapfs help [VERB]`},
		{"list --nosuch", 2, "", "unknown flag: --nosuch; usage: snapfs list"},
		{"list --limit x", 2, "", `--limit "x": want a whole number; usage: snapfs list`},
		{"list --limit", 2, "", "--limit needs a value: "},
		{"list --json=maybe", 2, "", `--json "maybe": want true or false`},
		{"show {", 3, "", "does not exist"},
		{"list x", 2, "", `unexpected argument "x"`},
		{"list --limit 0", 2, "", "--limit 0"},
		{"create", 2, "", "missing NAME"},
		{"create x --from /nonexistent/dir", 3, "", "/nonexistent/dir does not exist"},
		{"up x", 2, "", "missing MOUNTPOINT"},
		{"up x /nonexistent/parent/dir", 3, "", "parent does not exist"},
		{"up x /dev/null", 2, "", "not a directory"},
		{"mount x /mnt --transport pigeon", 2, "", "--transport"},
		{"serve --transport pigeon", 2, "", "--transport"},
		{"mount x /mnt --engine steam", 2, "", `--engine "steam": fuse, kernel or auto`},
		{"mount x /mnt -o engine=steam", 2, "", "engine=steam: fuse, kernel or auto"},
		{"up x /mnt --engine steam", 2, "", `--engine "steam"`},
		{"create x --engine steam", 2, "", `--engine "steam"`},
		{"branch x --engine steam", 2, "", `--engine "steam"`},
		{"restore x --engine steam", 2, "", `--engine "steam"`},
		{"restore x --to y --engine kernel", 2, "", "--engine"},
		{"fork x --engine steam", 2, "", `--engine "steam"`},
		{"run --engine podman -- true", 2, "", `--engine "podman": fuse, kernel or auto; --engine-cmd names`},
		{"help mount", 0, "--engine ENGINE", ""},
		{"help mount", 0, "Linux 6.12", ""},
		{"help run", 0, "--engine-cmd PROGRAM", ""},
		{"help run", 0, "--engine ENGINE", ""},
		{"__complete mount x --engine=", 0, "fuse\nkernel\nauto\n:4", ""},
		{"__complete create x --engine=", 0, "fuse\nkernel\nauto\n:4", ""},
		{"__complete run --engine=", 0, "fuse\nkernel\nauto\n:4", ""},
		{"__complete run --engine-cmd=", 0, "podman\ndocker\n:4", ""},
		{"serve --events-age soon", 2, "", "want a duration such as"},
		{"serve --events-age 99999d", 2, "", "want a duration such as"},
		{"serve --idle-after 10", 2, "", "want a duration such as"},
		{"delete", 2, "", "missing SNAP"},
		{"diff a b c", 2, "", `unexpected argument "c"`},
		{"run", 2, "", "missing CMD"},
		{"snapshot x --ttl soon", 2, "", "--ttl"},
		{"snapshot x --ttl -1h", 2, "", "--ttl"},
		{"snapshot x --expires-at 1999-01-01T00:00:00Z", 2, "", "past"},
		{"snapshot x --ttl 1h --expires-at 2999-01-01T00:00:00Z", 2, "", "exclude"},
		{"snapshot x --wait long", 2, "", "--wait"},
		{"create x --wait stored", 2, "", "imported"},
		{"up x y --wait stored", 2, "", "imported"},
		{"run --wait stored -- true", 2, "", "imported"},
		{"export s f --level 99", 2, "", "no levels"},
		{"export s f --compression zstd --level 99", 2, "", "1 to 22"},
		{"export s f --compression zip", 2, "", "--compression"},
		{"export s f --format iso", 2, "", "--format"},
		{"prune", 2, "", "--keep-last"},
		{"prune --keep-last 0", 2, "", "--keep-last 0"},
		{"prune --older-than soon", 2, "", "--older-than"},
		{"log", 2, "", "missing NAME"},
		{"token", 2, "", "missing ACTION"},
		{"token make", 2, "", "create, list or revoke"},
		{"token revoke", 2, "", "missing ID"},
		{"token list x", 2, "", `unexpected argument "x"`},
		{"token list --ttl 1h", 2, "", "--ttl is for create"},
		{"token create --ttl -1h", 2, "", "--ttl"},
		{"token create --scopes read,fly", 2, "", "--scopes"},
		{"token list", 3, "", "does not exist"},
		{"rollback x", 2, "", "missing SNAP"},
		{"snapshot x --cgroup /sys/fs/cgroup/x", 2, "", "--consistent"},
		{"list", 3, "", "does not exist"},
		{"events", 3, "", "does not exist"},
		{"snapshots", 3, "", "does not exist"},
		{"stats", 3, "", "does not exist"},
		{"check", 3, "", "does not exist"},
		{"show x", 3, "", "does not exist"},
	} {
		var out, errOut bytes.Buffer
		args := append([]string{"--home", missing}, strings.Fields(test.args)...)
		code := run(args, strings.NewReader(""), &out, &errOut)
		if code != test.code || !strings.Contains(out.String(), test.out) ||
			!strings.Contains(errOut.String(), test.err) {
			t.Errorf("snapfs %s: code %d, out %.80q, err %q; want %d, %q, %q", test.args, code, out.String(),
				errOut.String(), test.code, test.out, test.err)
		}
		if test.code != 0 && (out.Len() != 0 || strings.Count(errOut.String(), "\n") != 1) {
			t.Errorf("snapfs %s: an error is one line on standard error: out %q, err %q", test.args, out.String(),
				errOut.String())
		}
	}
}

func TestErrorsAsJSON(t *testing.T) {
	var out, errOut bytes.Buffer
	code := run([]string{"--home", t.TempDir() + "/none", "--json", "list"}, nil, &out, &errOut)
	if code != api.ExitNotFound {
		t.Fatalf("code %d", code)
	}
	var got struct {
		Error string `json:"error"`
		Kind  string `json:"kind"`
		Code  int    `json:"exit_code"`
	}
	if err := json.Unmarshal(errOut.Bytes(), &got); err != nil {
		t.Fatalf("%q: %v", errOut.String(), err)
	}
	if got.Kind != "not_found" || got.Code != api.ExitNotFound || got.Error == "" {
		t.Errorf("got %+v", got)
	}
}

// TestHelp checks that the help of every verb is complete.
func TestHelp(t *testing.T) {
	a := &app{Program: Program{Version: "test"}}
	for _, verb := range a.rootCommand(nil).Commands() {
		if verb.Hidden {
			continue
		}
		var out bytes.Buffer
		if code := run([]string{verb.Name(), "--help"}, nil, &out, &out); code != 0 {
			t.Errorf("%s --help: code %d", verb.Name(), code)
		}
		for _, part := range []string{wrapped(verb.Long), "Usage:", "Global options:", "Exit codes:"} {
			if part == "" || !strings.Contains(out.String(), part) {
				t.Errorf("%s --help lacks %.40q", verb.Name(), part)
			}
		}
	}
}

// TestVerbs compares the names by which verbs are found with those of their commands.
func TestVerbs(t *testing.T) {
	a := &app{}
	for _, v := range verbs {
		cmd := v.make(a)
		if cmd.Name() != v.name || strings.Join(cmd.Aliases, " ") != v.alias {
			t.Errorf("%s %s: the command is %s %v", v.name, v.alias, cmd.Name(), cmd.Aliases)
		}
	}
	for line, want := range map[string]int{
		"": len(verbs), "--json": len(verbs), "nosuch": len(verbs), "list": 1, "ls": 1, "--home list": len(verbs),
		"--home list show x": 1, "--home=x -q mount -- list create": 1, "--help": len(verbs),
		"--read-only=true mount": 1, "__complete li": len(verbs),
	} {
		if got := len(a.rootCommand(strings.Fields(line)).Commands()); got != want {
			t.Errorf("snapfs %s: made %d verbs, want %d", line, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, test := range []struct{ path, want string }{
		{"src/main.go", "src/main.go"},
		{"with blank", "with blank"},
		{"grüße/漢字", "grüße/漢字"},
		{" leading", `" leading"`},
		{"line\nbreak", `"line\nbreak"`},
		{"esc\x1b[31m", `"esc\x1b[31m"`},
		{"bad\xff", `"bad\xff"`},
		{`say "hi"`, `"say \"hi\""`},
		{`back\slash`, `"back\\slash"`},
		{"", `""`},
	} {
		if got := quote(test.path); got != test.want {
			t.Errorf("quote(%q) = %s, want %s", test.path, got, test.want)
		}
	}
}

func TestCollected(t *testing.T) {
	for _, test := range []struct {
		result api.GCResult
		want   string
	}{
		{api.GCResult{}, "freed 0 B in 0 chunks, deleted 0 expired snapshots"},
		{
			api.GCResult{Chunks: 13, Dropped: 200112},
			"freed 0 B, and 195 KiB for what is stored next, in 13 chunks, deleted 0 expired snapshots",
		},
		{
			api.GCResult{Chunks: 1, Freed: 4096, Dropped: 10, Expired: 2},
			"freed 4.0 KiB in 1 chunks, deleted 2 expired snapshots",
		},
	} {
		if got := collected(test.result); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.result, got, test.want)
		}
	}
}

// TestStopFails tells a daemon that does not understand the call from no daemon.
func TestStopFails(t *testing.T) {
	home := t.TempDir()
	stop := func(want int, text string) {
		t.Helper()
		for _, verb := range []string{"stop", "status"} {
			var out, errOut bytes.Buffer
			code := run([]string{"--home", home, verb}, strings.NewReader(""), &out, &errOut)
			if verb == "status" && want == api.ExitDone {
				want = api.ExitUnavailable
			}
			if code != want || !strings.Contains(errOut.String(), text) {
				t.Errorf("%s: code %d, %q; want %d, %q", verb, code, errOut.String(), want, text)
			}
		}
	}
	stop(api.ExitDone, "no daemon runs")
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "unix", filepath.Join(home, api.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	stop(api.ExitUnavailable, "does not know the call")
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	stop(api.ExitDone, "no daemon runs")
}

// TestLeftOver does not send those who gave --full to gc --full.
func TestLeftOver(t *testing.T) {
	if got, want := leftOver(535, false),
		"535 B of garbage remains between live data; gc --full returns most of it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := leftOver(535, true), "535 B of garbage remains between live data"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPinned(t *testing.T) {
	for _, test := range []struct {
		p    api.Pinned
		want string
	}{
		{
			api.Pinned{Why: api.PinDeleted, Workspace: "w", Mountpoint: "/m", Files: 2, Bytes: 4096},
			"4.0 KiB are kept by 2 deleted files that programs have open in workspace w at /m, until they are closed",
		},
		{
			api.Pinned{Why: api.PinDeleted, Workspace: "w", Files: 1, Bytes: 4096},
			"4.0 KiB are kept by a deleted file that a program has open in workspace w, until it is closed",
		},
		{
			api.Pinned{Why: api.PinMount, Workspace: "w", Bytes: 10, Detail: "an error"},
			"10 B are kept by the mount of workspace w, until the next gc or unmount: an error",
		},
		{api.Pinned{Why: api.PinCall, Bytes: 1}, "1 B are kept by exports, comparisons or other calls, until they end"},
	} {
		if got := pinned(test.p); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.p, got, test.want)
		}
	}
}

// TestEventLine: the id, for --after, is in the text as well.
func TestEventLine(t *testing.T) {
	e := api.Event{ID: "0199d5a4", Kind: "created", Workspace: "app", Session: "s", Detail: "from x", Level: "warn"}
	line := eventLine(e)
	for _, want := range []string{"0199d5a4  ", "created", " app", "session s", "from x", "(warning)"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
	if !strings.HasPrefix(line, e.ID) {
		t.Errorf("%q does not begin with the id", line)
	}
}

// TestStatsText: a home that one workspace and its snapshots fill has not "unique 0 B", as if nothing were its own.
func TestStatsText(t *testing.T) {
	for _, test := range []struct {
		stats api.Stats
		want  string
		never string
	}{
		{api.Stats{Stored: 4096, Shared: 4096}, "of several", "unique"},
		{api.Stats{Ref: "app", Stored: 4096, Unique: 4096}, "unique", "of one"},
		{api.Stats{Session: "s", Stored: 4096, Unique: 4096}, "unique", "of one"},
	} {
		var out bytes.Buffer
		if err := printStats(&out, test.stats); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !strings.Contains(text, test.want) || strings.Contains(text, test.never) {
			t.Errorf("%+v: %q", test.stats, text)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{"/srv/ws": "/srv/ws", "/srv/my ws": "'/srv/my ws'", "it's": `'it'\''s'`} {
		if got := shellWord(in); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", in, got, want)
		}
	}
}

// TestListsMarkProblems checks that both lists mark workspaces and snapshots with a layer that cannot be stored.
func TestListsMarkProblems(t *testing.T) {
	var out bytes.Buffer
	err := errors.Join(
		workspaceTable(&out,
			api.WorkspacePage{Workspaces: []api.Workspace{{ID: "bad", Problem: "too many owners"}, {ID: "good"}}}),
		snapshotTable(&out,
			api.SnapshotPage{Snapshots: []api.Snapshot{{ID: "bad", Problem: "too many owners"}, {ID: "good"}}}))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		f := strings.Fields(line)
		want := map[string]string{"NAME": "PROBLEM", "ID": "PROBLEM", "bad": "not-storable", "good": "-"}[f[0]]
		if f[len(f)-1] != want {
			t.Errorf("%q ends with %q, want %q", line, f[len(f)-1], want)
		}
	}
}

// TestImportState tells how far an import is.
func TestImportState(t *testing.T) {
	for want, i := range map[string]*api.Import{
		"":              nil,
		"importing":     {Total: -1},
		"importing-12":  {Running: true, Files: 12, Total: -1},
		"importing-42%": {Running: true, Files: 42, Total: 100},
		"importing-99%": {Running: true, Files: 120, Total: 100},
		"import-failed": {Problem: "no room", Total: -1},
		"importing-3":   {Running: true, Files: 3, Total: -1, Problem: "no room"},
	} {
		if got := importState(i); got != want {
			t.Errorf("%+v is %q, want %q", i, got, want)
		}
	}
	var out bytes.Buffer
	err := showWorkspace(&out, api.Workspace{Import: &api.Import{Running: true, Files: 50, Bytes: 2048, Total: 200, Changed: 1, Missing: 2, Problem: "no room"}})
	if text := out.String(); err != nil || !strings.Contains(text, "50 files, 2.0 KiB (25 %), failed before: no room") ||
		!strings.Contains(text, "1 file after") || !strings.Contains(text, "2 names gone") {
		t.Errorf("%s %v", text, err)
	}
}

// TestAllPages joins pages, in which the service says that there are more.
func TestAllPages(t *testing.T) {
	var asked []string
	of := paged[api.SnapshotPage]{
		ask: func(_ api.API, _ context.Context, r api.ListRequest) (api.SnapshotPage, error) {
			asked = append(asked, r.After)
			id := r.After + "x"
			return api.SnapshotPage{Snapshots: []api.Snapshot{{ID: id}}, More: len(id) < 3}, nil
		},
		next: nextSnapshot, join: joinSnapshots,
	}
	page, next, err := of.pages(nil, t.Context(), api.ListRequest{}, true)
	if err != nil || next != "" || page.More || len(page.Snapshots) != 3 || strings.Join(asked, " ") != " x xx" {
		t.Errorf("all: %+v, %q, %v, asked %q", page, next, err, asked)
	}
	page, next, err = of.pages(nil, t.Context(), api.ListRequest{After: "x"}, false)
	if err != nil || next != "xx" || !page.More || len(page.Snapshots) != 1 {
		t.Errorf("one: %+v, %q, %v", page, next, err)
	}
}
