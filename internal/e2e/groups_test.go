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
	"golang.org/x/sys/unix"

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

// call makes a call without the command and gives the answer.
func (u user) call(name, request string) string {
	u.t.Helper()
	r := u.process("curl", "-sS", "--unix-socket", filepath.Join(u.dir, "daemon.sock"), "-d", request, "http://snapfs/v1/"+name)
	require.Zero(u.t, r.code, r.err)
	return r.out
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
	t.Run("HTTP", func(t *testing.T) {
		text, err := os.ReadFile("../../docs/HTTP.md")
		require.NoError(t, err)
		r := member.process("bash", "-euo", "pipefail", "-c", strings.Split(string(text), "\n```")[1])
		require.Zero(t, r.code, r.err)
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		for _, line := range lines {
			require.NotContains(t, line, `{"error"`)
		}
		require.Contains(t, lines[0], `"session":"uid-4302"`)
		require.Contains(t, r.out, `"name":"first"`)
		require.Contains(t, r.out, `{"event":{`)
		require.Contains(t, lines[len(lines)-1], `{"result":`)
	})
	t.Run("Namespace", func(t *testing.T) {
		// Root of a user namespace is the user that it is mapped to.
		r := stranger.process("unshare", "--user", "--map-root-user", snapfs, "list")
		require.Equal(t, 5, r.code, r.err)
		r = rule.process("unshare", "--user", "--map-root-user", snapfs, "stop")
		require.Equal(t, 5, r.code, r.err)
		require.Contains(t, r.err, "uid 4301 is bound")
	})
	t.Run("Mounts", func(t *testing.T) { mountsOfUsers(t, h, rule, other) })
	t.Run("Paths", func(t *testing.T) { pathsOfUsers(t, h, rule) })
}

// pathsOfUsers names paths of the host as a user who has no rights to some of them.
func pathsOfUsers(t *testing.T, h *home, u user) {
	shell(t, soon, h.tmp, `
		mkdir -p mine/tree/sub shut && echo text > mine/tree/sub/file
		chown -R 4301:4301 mine && chmod 4711 mine/tree/sub/file && chmod 700 mine shut
		echo secret > shut/file && echo secret > mine/tree/theirs && chmod 600 mine/tree/theirs
		mksquashfs shut shut/image.sqsh -quiet -no-progress && cp shut/image.sqsh mine/image.sqsh && chmod 644 mine/image.sqsh
		ln -s ../shut mine/link && ln -s ../shut/image.sqsh mine/image-link.sqsh && mkfifo mine/pipe.sqsh`)
	for _, from := range []string{"shut", "shut/image.sqsh", "mine/image-link.sqsh", "mine/link", "shut/no"} { // the daemon itself is asked
		require.Contains(t, u.call("create", `{"name":"t1","source":"`+h.path(from)+`"}`), "uid 4301 may not", from)
	}
	u.refuses(5, "uid 4301 may not", "create", "t1", "--from", h.path("mine/tree")) // a file in it
	u.refuses(2, "neither a directory nor a file", "create", "t1", "--from", h.path("mine/pipe.sqsh"))
	require.NoError(t, os.Remove(h.path("mine/tree/theirs")))
	u.ok("create", "t1", "--from", h.path("mine/tree"))
	u.ok("create", "t2", "--from", h.path("mine/image.sqsh"))
	require.True(t, decode[sandbox.Object](h, "show", "t1", "--session", "a").Workspace.Foreign, "nosuid wherever it is mounted")

	id := u.ok("snapshot", "t1", "--wait", "stored")
	for _, to := range []string{"shut/new", "new", "mine/link/new", "shut/file", "mine/tree/../../shut/file"} {
		u.refuses(5, "uid 4301 may not", "export", id, h.path(to))
		u.refuses(5, "uid 4301 may not", "restore", id, "--to", h.path(to))
	}
	require.Equal(t, "secret\n", h.read("shut/file"))
	u.ok("export", id, h.path("mine/new.sqsh"))
	u.ok("export", id, h.path("mine/new.sqsh")) // in its place
	u.ok("restore", id, "--to", h.path("mine/new"))
	u.ok("restore", id, "--to", h.path("mine/new"))
	require.Equal(t, "4301:4301 644\n", shell(t, soon, h.tmp, `stat -c "%u:%g %a" mine/new.sqsh`))
	require.Equal(t, "4301:4301 4711\n", shell(t, soon, h.tmp, `stat -c "%u:%g %a" mine/new/sub/file`))

	// What belongs to others becomes the user's, without setuid bits, attributes that only root sets, and devices.
	shell(t, soon, h.tmp, `mkdir system && cp /bin/true system/suid && chmod 4755 system/suid && cp /bin/true system/caps &&
		setfattr -n security.capability -v 0sAQAAAgAgAAAAAAAAAAAAAAAAAAA= system/caps && mknod system/disk b 7 0 && chmod 711 system`)
	h.ok("create", "system", "--from", h.path("system"), "--session", "a")
	theirs := h.ok("snapshot", "system", "--session", "a")
	r := u.run("restore", theirs, "--to", h.path("mine/system"))
	require.Equal(t, 1, r.code, r.err)
	require.Equal(t, "4301:4301 755\n4301:4301 755\n", shell(t, soon, h.tmp, `stat -c "%u:%g %a" mine/system/suid mine/system/caps`))
	shell(t, soon, h.tmp, `test ! -e mine/system/disk && test -z "$(getfattr -m - -d mine/system/caps)"`)

	// Control groups: one that the user may not write, and what only looks like one.
	shell(t, soon, h.tmp, `mkdir mine/group && ln -s ../../shut/file mine/group/cgroup.freeze && touch mine/group/cgroup.events && chown -R 4301 mine/group`)
	u.refuses(2, "not in a file system of control groups", "pause", "t1", "--cgroup", h.path("mine/group"))
	u.refuses(2, "not in a file system of control groups", "pause", "t1", "--cgroup", h.path("shut"))
	if group := cgroupForTest(t); group != "" {
		u.refuses(5, "uid 4301 may not", "pause", "t1", "--cgroup", group)
		shell(t, soon, h.tmp, `chown 4301 "$1" "$1"/*freeze* "$1"/cgroup.events 2>/dev/null || true`, group)
		u.ok("pause", "t1", "--cgroup", group)
		u.ok("resume", "t1")
	}
	require.Equal(t, "secret\n", h.read("shut/file"))
}

// cgroupForTest makes a control group whose processes can be frozen; "" where none can be made.
func cgroupForTest(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/freezer"} {
		dir := filepath.Join(root, "snapfs-test-"+itoa(os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		for _, name := range []string{"cgroup.freeze", "freezer.state"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return dir
			}
		}
	}
	return ""
}

// mountsOfUsers mounts as a user: only on its own directories, without setuid programs and devices, and for itself.
func mountsOfUsers(t *testing.T, h *home, u, other user) {
	shell(t, soon, h.tmp, `mkdir -p own/at own/else closed/in && chown -R 4301:4301 own closed/in && chmod 700 closed && chmod 755 own
		mkdir roots && chmod 777 roots && ln -s ../roots own/link`)
	at := h.path("own/at")
	u.refuses(5, "belongs to uid 0", "mount", "ofa", h.path("roots"))
	u.refuses(5, "belongs to uid 0", "mount", "ofa", h.path("own/link"))
	u.refuses(5, "uid 4301 may not", "mount", "ofa", h.path("closed/in"))
	u.refuses(5, "nosuid and nodev", "mount", "ofa", at, "--suid")
	u.refuses(5, "nosuid and nodev", "branch", u.ok("snapshot", "ofa"), at, "--dev")
	require.Contains(t, u.call("mount", `{"workspace":"ofa","mountpoint":"`+h.path("closed/new")+`","make_mountpoint":true}`), "uid 4301 may not")
	other.refuses(3, "not found", "mount", "ofa", at)
	end := start(t, h, h.path("own"), append(append([]string{"setpriv"}, u.flags...), "sh", "-c", `echo $$ > pid; exec sleep 60`)...)
	pid := strings.TrimSpace(shell(t, soon, h.path("own"), `until test -s pid; do sleep 0.02; done; cat pid; rm pid`))
	u.refuses(5, "choose a directory for files", "mount", "ofa", "/proc/"+pid+"/task")
	end()

	u.ok("mount", "ofa", at)
	options := shell(t, soon, h.tmp, `findmnt -no OPTIONS own/at`)
	for _, want := range []string{"nosuid", "nodev", "user_id=4301", "group_id=4301"} {
		require.Contains(t, options, want)
	}
	r := u.process("sh", "-c", `cd "$1" && echo text > file && mkdir dir && stat -c "%u:%g" . file`, "sh", at)
	require.Equal(t, "4301:4301\n4301:4301\n", r.out, r.err)
	require.NotZero(t, other.process("ls", at).code, "others would hang with what the user pauses")
	u.refuses(4, "cannot be changed", "mount", "ofa", "-o", "remount,allow_other")
	u.ok("umount", "ofa")
	fuseConf(t, h, "")
	u.refuses(4, "user_allow_other in /etc/fuse.conf", "mount", "ofa", at, "--allow-other")
	require.Empty(t, mountsBelow(at))
	fuseConf(t, h, "mount_max = 1000\n user_allow_other # for all\n")
	u.ok("mount", "ofa", at)
	require.NotZero(t, other.process("ls", at).code, "that others may be let in does not let them in")
	u.ok("umount", "ofa")
	u.ok("mount", "ofa", at, "-o", "allow_other")
	require.Zero(t, other.process("ls", at).code)
	u.ok("umount", "ofa")
	u.ok("mount", "ofa", at)
	u.refuses(5, "nosuid and nodev", "mount", "ofa", "-o", "remount,suid")
	u.ok("mount", "ofa", "-o", "remount,ro")
	require.Contains(t, shell(t, soon, h.tmp, `findmnt -no OPTIONS own/at`), "ro,nosuid,nodev")
	u.ok("mount", "ofa", "-o", "remount,rw")
	h.ok("mount", "ofb", h.path("roots"), "--session", "b")
	u.refuses(5, "did not mount", "mount", "ofb", "-o", "remount,noexec", "--session", "b")
	h.ok("umount", "ofb", "--session", "b")
	u.ok("snapshot", "ofa", "--name", "first")
	require.Contains(t, u.ok("diff", "ofa", "--json"), "[]")
	u.ok("pause", "ofa")
	u.ok("resume", "ofa")

	// What is above the mountpoint is renamed, and leads to a mount of root: that one stays.
	shell(t, soon, h.tmp, `mkdir -p victims/at && mount -t tmpfs none victims/at && mv own aside && ln -s victims own`)
	u.run("umount", "ofa", "--force")
	shell(t, soon, h.tmp, `mountpoint -q victims/at && umount victims/at && rm own && mv aside own`)
	require.Empty(t, mountsBelow(h.path("own")))

	// Mounted again, by whomever, the directory is that user's choice.
	shell(t, soon, h.tmp, `rmdir own/at && ln -s ../roots own/at`)
	h.fails(5, "belongs to uid 0", "mount", "ofa", "--session", "a")
	shell(t, soon, h.tmp, `rm own/at && mkdir own/at && chown 4301:4301 own/at`)
	h.ok("mount", "ofa", "--session", "a")
	require.Contains(t, shell(t, soon, h.tmp, `findmnt -no OPTIONS own/at`), "user_id=4301")
	h.ok("upgrade") // to itself
	require.Contains(t, shell(t, soon, h.tmp, `findmnt -no OPTIONS own/at`), "user_id=4301")
	stranger := h.as(4304, "4304")
	stranger.refuses(5, "may use this socket", "list")
	u.ok("umount", "ofa")
	u.ok("mount", "--read-only", "first", at)
	r = u.process("cat", at+"/file")
	require.Equal(t, "text\n", r.out, r.err)
	require.NotContains(t, u.ok("list"), "view")
	u.ok("umount", at)
	require.NotContains(t, u.ok("list", "--all"), "view")
	r = u.process("env", "TMPDIR="+h.path("own"), snapfs, "run", "--from", "first", "--", "cat", "file")
	require.Equal(t, "text\n", r.out, r.err)
	require.Empty(t, mountsBelow(h.tmp))
}

// fuseConf gives fusermount3 and the daemon a configuration, until the end of the test.
func fuseConf(t *testing.T, h *home, conf string) {
	t.Helper()
	path := h.path("fuse.conf")
	if _, err := os.Lstat(path); err != nil {
		require.NoError(t, os.WriteFile(path, nil, 0o644))
		require.NoError(t, unix.Mount(path, "/etc/fuse.conf", "", unix.MS_BIND, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount("/etc/fuse.conf", 0)) })
	}
	require.NoError(t, os.WriteFile(path, []byte(conf), 0o644))
}
