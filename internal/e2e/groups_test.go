package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
)

// user runs verbs as another user.
type user struct {
	*home
	flags []string // of setpriv
}

// as gives the command to a user, who is in the groups after the first beside.
func (h *home) as(uid int, groups ...string) user {
	flags := []string{"--reuid=" + itoa(uid), "--regid=" + groups[0], "--clear-groups"}
	if len(groups) > 1 {
		flags[2] = "--groups=" + strings.Join(groups[1:], ",")
	}
	return user{h, flags}
}

func (u user) run(args ...string) result {
	u.t.Helper()
	return u.process(append([]string{snapfs}, args...)...)
}

func (u user) process(argv ...string) result {
	u.t.Helper()
	line := append(append([]string{"setpriv"}, u.flags...), "--")
	return process(u.t, soon, u.tmp, u.env, append(line, argv...)...)
}

func (u user) ok(args ...string) string {
	u.t.Helper()
	r := u.run(args...)
	if r.code != 0 {
		u.t.Fatalf("%q as %q ended with %d: %s%s\n%s", args, u.flags, r.code, tail(r.out), tail(r.err), tail(u.log()))
	}
	return strings.TrimSuffix(r.out, "\n")
}

// refuses runs a verb that has to end with a code and one line with a text in it.
func (u user) refuses(code int, text string, args ...string) {
	u.t.Helper()
	r := u.run(args...)
	if r.code != code || strings.Count(r.err, "\n") != 1 || r.out != "" || !strings.Contains(r.err, text) {
		u.t.Errorf("%q as %q ended with %d, want %d: out %q, err %q, want one line with %q",
			args, u.flags, r.code, code, tail(r.out), tail(r.err), text)
	}
}

// newSharedHome makes a home with a daemon that serves other users, too.
func newSharedHome(t *testing.T, flags ...string) *home {
	t.Helper()
	h := newHome(t)
	for _, dir := range []string{filepath.Dir(snapfs), filepath.Dir(h.tmp), h.tmp} { // the tests' own
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	start(t, h, h.tmp, append([]string{complete, "serve", "-q"}, flags...)...)
	for end := time.Now().Add(soon); h.run("status").code != 0; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "the daemon does not serve")
	}
	return h
}

// TestGroups shares one daemon with users that are bound to sessions, as a group and by rules.
func TestGroups(t *testing.T) {
	h := newSharedHome(t, "--socket-group", "4400", "--allow", "uid=4301:session=a,b", "--allow", "gid=4310:session=c")
	h.env = append(h.env, "SNAPFS_SESSION=")
	rule, member, other := h.as(4301, "4301"), h.as(4302, "4302", "4400"), h.as(4303, "4303", "4310")
	stranger := h.as(4304, "4304")
	h.ok("create", "secret")
	h.ok("snapshot", "secret", "--name", "hidden")

	t.Run("Sessions", func(t *testing.T) {
		for _, tc := range []struct {
			who           user
			name, session string
			flags         []string
		}{
			{rule, "ofa", "a", nil},
			{rule, "ofb", "b", []string{"--session", "b"}},
			{member, "ofmember", "uid-4302", nil},
			{other, "ofc", "c", nil},
		} {
			tc.who.ok(append([]string{"create", tc.name}, tc.flags...)...)
			var page sandbox.WorkspacePage
			require.NoError(t, json.Unmarshal([]byte(tc.who.ok(append([]string{"--json", "list"}, tc.flags...)...)), &page))
			require.Len(t, page.Workspaces, 1)
			require.Equal(t, tc.name, page.Workspaces[0].ID)
			require.Equal(t, tc.session, page.Workspaces[0].Session)
		}
		stranger.refuses(5, "may use this socket", "list")
		require.Len(t, decode[sandbox.WorkspacePage](h, "list", "--allow-cross-session").Workspaces, 5, "root sees all")
	})
	t.Run("Others", func(t *testing.T) {
		id := h.snapshot("hidden").ID
		for _, verb := range [][]string{
			{"show", "secret"},
			{"show", "hidden"},
			{"show", id},
			{"log", "secret"},
			{"snapshot", "secret"},
			{"fork", "secret"},
			{"branch", "hidden"},
			{"branch", id},
			{"rollback", "secret", "hidden"},
			{"umount", "secret"},
			{"pause", "secret"},
			{"diff", "secret"},
			{"destroy", "secret"},
			{"stats", "secret"},
			{"show", "ofmember"},
		} {
			rule.refuses(3, "not found", verb...)
			rule.refuses(5, "may not use what belongs to others", append(verb, "--allow-cross-session")...)
			rule.refuses(5, "may not use session", append(verb, "--session", "default")...)
		}
		rule.refuses(4, "exists already", "create", "secret")
		for _, verb := range []string{"gc", "check", "stop"} {
			rule.refuses(5, "bound to sessions a, b", verb)
			stranger.refuses(5, "may use this socket", verb)
		}
		require.Empty(t, rule.ok("prune", "--keep-last", "1", "-q"))
		require.NotEmpty(t, h.snapshot(id).ID, "root's snapshot")
		require.NotContains(t, rule.ok("events"), "secret")
		var st sandbox.Stats
		require.NoError(t, json.Unmarshal([]byte(rule.ok("stats", "--json")), &st))
		require.Equal(t, "a", st.Session)
		require.EqualValues(t, 1, st.Workspaces)
		var info wire.Info
		require.NoError(t, json.Unmarshal([]byte(rule.ok("status", "--json")), &info))
		require.Equal(t, strconv.Itoa(h.pid()), strconv.Itoa(info.PID))
	})
	t.Run("Modes", func(t *testing.T) {
		r := stranger.process("ls", h.dir)
		require.NotZero(t, r.code, "the home can be passed, and not listed: %s", r.out)
		for _, name := range []string{"store", "uppers", "lost+found", "snapfs.json"} {
			r := stranger.process("cat", filepath.Join(h.dir, name))
			require.NotZero(t, r.code, name)
		}
	})
	t.Run("Namespace", func(t *testing.T) {
		// Root of a user namespace is the user that it is mapped to.
		r := stranger.process("unshare", "--user", "--map-root-user", snapfs, "list")
		require.Equal(t, 5, r.code, r.err)
		r = rule.process("unshare", "--user", "--map-root-user", snapfs, "stop")
		require.Equal(t, 5, r.code, r.err)
		require.Contains(t, r.err, "uid 4301 is bound")
	})
}
