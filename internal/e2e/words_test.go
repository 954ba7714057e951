package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// goWords are what programs in Go say when nobody has thought about it.
var goWords = regexp.MustCompile(`context deadline|context canceled|dial unix|\bEOF\b|strconv|json:|invalid argument ".*" for|i/o timeout|fork/exec|\bexec:|goroutine|<nil>|%!`)

// says runs a command that has to fail with a code and one line, which has a text and no words of Go.
func (h *home) says(code int, text string, argv ...string) {
	h.t.Helper()
	r := process(h.t, soon, h.tmp, h.env, argv...)
	lines := strings.Split(strings.TrimSuffix(r.err, "\n"), "\n")
	if strings.HasPrefix(lines[0], "snapfs: started daemon") {
		lines = lines[1:]
	}
	if r.code != code || len(lines) != 1 || !strings.Contains(lines[0], text) || goWords.MatchString(lines[0]) {
		h.t.Errorf("%q ended with %d, want %d and one line with %q: %s", argv, r.code, code, text, tail(r.err))
	}
}

// TestWordsOfInput: what is wrong with a command line is said without words of Go, and how the verb is used.
func TestWordsOfInput(t *testing.T) {
	h := newHome(t)
	h.ok("create", "one")
	h.ok("create", "theirs", "--session", "theirs")
	for _, test := range []struct {
		code int
		text string
		args string
	}{
		{2, "usage: snapfs create ", "create"},
		{2, `--max-snapshots "x": want a whole number; usage: snapfs serve`, "serve --max-snapshots x"},
		{2, `--idle-after "x": want a duration such as`, "serve --idle-after x"},
		{2, `--keep-last "x": want a whole number`, "prune --keep-last x"},
		{2, "--keep-last needs a value: N", "prune --keep-last"},
		{2, `--json "x": want true or false`, "list --json=x"},
		{2, "'snapfs help' lists the verbs", "nosuch"},
		{2, "unknown verb", "help nosuch"},
		{2, "it ends too early", `show {"providerId":`},
		{2, "it is not JSON", `show {x`},
		{2, "providerId", `show {"providerId":7}`},
		{5, "belongs to another session (--allow-cross-session", "show theirs"},
		{127, "not found in PATH", "run --empty -- no-such-program"},
		{2, "--allow", "serve --allow uid=x:session=a --home /proc/none"},
		{2, "unknown flag: --name-only; usage: snapfs diff ", "diff one --name-only"},
	} {
		h.says(test.code, test.text, append([]string{snapfs}, strings.Fields(test.args)...)...)
	}
	require.Contains(t, h.ok("help", "snapshot"), "Usage:\n  snapfs snapshot")
	require.Equal(t, h.ok("--help"), h.ok("help"))

	// A daemon that is stopped is not waited for.
	pid := h.pid()
	halt(t, pid)
	for _, verb := range []string{"list", "status", "stop"} {
		h.says(7, "kill -CONT "+itoa(pid), snapfs, verb)
	}
	require.NoError(t, unix.Kill(pid, unix.SIGCONT))

	// Nor is one in a control group that is frozen.
	group := cgroupForTest(t)
	if group == "" {
		return // no groups can be made here
	}
	shell(t, soon, group, `echo "$1" > cgroup.procs; if [ -e cgroup.freeze ]; then echo 1 > cgroup.freeze; else echo FROZEN > freezer.state; fi`, itoa(pid))
	for _, verb := range []string{"list", "status", "stop"} {
		h.says(7, "frozen control group "+group+": 'echo ", snapfs, verb)
	}
	shell(t, soon, group, `if [ -e cgroup.freeze ]; then echo 0 > cgroup.freeze; else echo THAWED > freezer.state; fi`)
	h.ok("stop")
}

// TestWordsOfPrivilege: where something is missing that mounting needs, the error says what, and what to do.
func TestWordsOfPrivilege(t *testing.T) {
	for name, test := range map[string]struct {
		before []string
		text   string
	}{
		"Capability": {[]string{"setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"}, "lacks CAP_SYS_ADMIN"},
		"Namespace":  {[]string{"unshare", "--user", "--map-root-user"}, "mount namespace of its own"},
		"User": {
			[]string{"unshare", "--mount", "--propagation", "private", "bash", "-c", `d=$(mktemp -d) && mount -t tmpfs none "$d" &&
				mknod -m 600 "$d/fuse" c 10 229 && mount --bind "$d/fuse" /dev/fuse &&
				exec setpriv --reuid=4301 --regid=4301 --clear-groups "$@"`, "bash"},
			"mode 0666",
		},
		"Device": {
			[]string{"unshare", "--mount", "bash", "-c", `mount -t tmpfs none /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9 && exec "$@"`, "bash"},
			"--device /dev/fuse",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			require.NoError(t, os.Chmod(h.tmp, 0o777))
			for _, dir := range []string{filepath.Dir(snapfs), filepath.Dir(h.tmp)} { // the tests' own
				require.NoError(t, os.Chmod(dir, 0o755))
			}
			h.says(7, test.text, append(test.before, snapfs, "up", "one", h.path("ws"))...)
			require.Empty(t, mountsBelow(h.tmp))
		})
	}
}
