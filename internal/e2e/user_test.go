package e2e

import (
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/posix"
	"snapfs/internal/testseed"
	"snapfs/internal/twin"
	"snapfs/sandbox"
)

// A user without privilege of the host, whom the setuid program fusermount3 must find in /etc/passwd.
const userUID, userGID = "5", "60" // games

// commandsEnv is where a test binary that another one has started finds the commands, which it does not build.
const commandsEnv = "SNAPFS_E2E_COMMANDS"

// userTests are what a plain user and the root of a user namespace do, by names; the latter the first three only.
var userTests = []struct {
	name  string
	run   func(t *testing.T)
	plain bool // the plain user only
}{
	{"Verbs", userVerbs, false},
	{"Foreign", userForeign, false},
	{"Run", userRun, false},
	{"Apply", TestApplyToDirectory, true},
	{"Twin", userTwin, true},
	{"Posix", userPosix, true},
	{"Kill", TestKillWhileStoring, true},
	{"Kernel", userKernel, true},
}

// TestPlainUser runs tests as a user without any privilege, and as root of a user namespace, in a mount namespace where
// /dev/fuse has the mode that distributions give it.
func TestPlainUser(t *testing.T) {
	if os.Getenv(commandsEnv) != "" {
		for _, test := range userTests {
			if os.Geteuid() != 0 || !test.plain {
				t.Run(test.name, test.run)
			}
		}
		return
	}
	h := newHome(t)
	// Root's home has a tree with all that the host refuses a user.
	shell(t, soon, h.makeDir("src"), foreignTree)
	h.ok("create", "foreign", "--from", h.path("src"))
	id := h.ok("snapshot", "foreign", "--wait", "stored")
	h.ok("export", id, h.path("foreign.sqsh"))
	// The workspace as root has it after what the user does, too.
	h.ok("create", "again", "--from", h.path("foreign.sqsh"))
	h.ok("mount", "again", h.makeDir("again"))
	shell(t, soon, h.path("again"), moveAll)
	own := func(dir string) { // the tests' own directories, down to this one
		for ; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
			require.NoError(t, os.Chmod(dir, 0o755))
		}
	}
	own(h.tmp)
	own(filepath.Dir(snapfs))
	self, err := os.Executable()
	require.NoError(t, err)
	shell(t, soon, h.tmp, `mkdir user; chown "$2:$3" user; chmod 644 foreign.sqsh; cp "$1" test; chmod 755 test
		mkdir dev`, self, userUID, userGID)
	for name, inside := range map[string]string{"User": "", "Namespace": "unshare --user --map-root-user --mount"} {
		t.Run(name, func(t *testing.T) {
			env := []string{
				commandsEnv + "=" + filepath.Dir(snapfs), "SNAPFS_E2E_FOREIGN=" + h.tmp, "SNAPFS_HOME=",
				"TMPDIR=" + h.path("user"), "HOME=" + h.path("user"), "XDG_DATA_HOME=", "SNAPFS_E2E=",
			}
			r := process(t, 8*time.Minute, h.path("user"), env, "unshare", "--mount", "--propagation", "private", "bash", "-c", `
				mount -t tmpfs none "$1/dev"
				mknod -m 666 "$1/dev/fuse" c 10 229
				mount --bind "$1/dev/fuse" /dev/fuse
				echo user_allow_other > "$1/dev/fuse.conf"
				mount --bind "$1/dev/fuse.conf" /etc/fuse.conf
				exec setpriv --reuid "$2" --regid "$3" --clear-groups --inh-caps=-all $4 "$1/test" -test.run '^TestPlainUser$' -test.v`,
				"bash", h.tmp, userUID, userGID, inside)
			if r.code != 0 || !strings.Contains(r.out, "--- PASS: TestPlainUser/Verbs") {
				t.Errorf("ended with %d:\n%s%s", r.code, r.out, r.err)
			}
			for _, line := range strings.Split(r.out, "\n") {
				if strings.Contains(line, "--- PASS") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// foreignTree makes what only root can, in a directory that everybody may change.
const foreignTree = `umask 022
	echo a > f; chown 1000:1001 f; chmod 640 f; ln f hard; setfacl -m u:7:rw f
	setfattr -n trusted.foo -v bar f; setfattr -n trusted.overlay.opaque -v y f; setfattr -n user.overlay.x -v z f
	echo s > suid; chown 0:33 suid; setfattr -n security.capability -v 0sAQAAAgAgAAAAAAAAAAAAAAAAAAA= suid; chmod 6755 suid
	mknod null c 1 3; mknod -m 600 disk b 259 70000; mknod white c 0 0; mkfifo -m 644 pipe
	python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
	ln -s f link; chown -h 7:8 link; setfattr -h -n trusted.l -v 1 link; setfattr -n trusted.d -v 1 null
	mkdir closed; echo x > closed/x; chmod 0 closed/x closed; mkdir sgid; chown 3:4 sgid; chmod 2775 sgid
	mkdir -m 1777 sticky; mkdir -m 777 d; mv suid null disk white pipe sock link closed sgid sticky d; cp -a f d/copy
	chmod 777 .`

// moveAll renames it all, which copies it up.
const moveAll = `mv f g; for f in d/*; do mv "$f" "d/moved-${f#d/}"; done; mkdir -m 755 there; mv d/moved-link d/moved-null there`

// homeOf is a home of the user who runs the tests, in its usual place.
func homeOf(t *testing.T) *home {
	h := newHome(t)
	h.env = []string{"SNAPFS_HOME=", "XDG_DATA_HOME=" + h.path("data"), "SNAPFS_E2E=" + h.tmp, "TMPDIR=" + h.tmp}
	h.dir = h.path("data/snapfs")
	return h
}

// userVerbs goes through the life of a workspace.
func userVerbs(t *testing.T) {
	h := homeOf(t)
	ws := h.path("ws")
	h.ok("up", "w", ws)
	shell(t, soon, ws, `umask 022; echo one > f; ln -s f link; mkdir d; echo x > d/x; mkfifo pipe; ln f hard
		echo locked > ro; chmod 400 ro; (umask 777; echo none > none); mkdir -m 0 zero; echo s > suid; chmod 4755 suid
		[ "$(stat -c %a ro none zero suid | tr '\n' ' ')" = "400 0 0 4755 " ]
		echo more >> suid; [ "$(id -u)" = 0 ] || [ "$(stat -c %a suid)" = 755 ]
		! cat none 2>/dev/null || [ "$(id -u)" = 0 ]; ! chown 1:1 f 2>/dev/null
		git init -q repo; git -C repo config user.email a@b; git -C repo config user.name n; cp f repo/f
		git -C repo add f; git -C repo commit -qm one; [ -z "$(git -C repo status --short)" ]`)
	require.Contains(t, shell(t, soon, h.tmp, `ls data/snapfs`), "snapfs-home")
	if os.Geteuid() != 0 {
		require.NotContains(t, shell(t, soon, h.tmp, `findmnt -no OPTIONS ws`), "allow_other")
		h.ok("umount", "w")
		h.ok("mount", "w", "--allow-other")
		require.Contains(t, shell(t, soon, h.tmp, `findmnt -no OPTIONS ws`), "allow_other")
		h.ok("umount", "w")
		h.ok("mount", "w")
	}
	list := func(dir string) string {
		return shell(t, soon, dir, `find . -printf '%P %M %U %G %n %T@ %l\n' -name 'zero*' -prune | sort`)
	}
	before := list(ws)
	one := h.ok("snapshot", "w", "--name", "one", "--wait", "stored")
	require.Equal(t, before, list(ws))
	shell(t, soon, ws, `mv link link2; rm f; echo y > d/y; chmod 700 d; mv zero zero2; chmod 600 ro; echo again >> ro; rm -r repo/.git`)
	diff := h.ok("diff", "w")
	for _, line := range []string{"A d/y", "M d", "R link -> link2", "R zero -> zero2", "M ro", "D f"} {
		require.Contains(t, strings.Split(diff, "\n"), line)
	}
	after := list(ws)
	h.ok("snapshot", "w", "--name", "two")
	require.Equal(t, after, list(ws))
	h.ok("rollback", "w", "w:one")
	require.Equal(t, before, list(ws))
	h.ok("branch", "w:two", h.path("branch"))
	require.Equal(t, after, list(h.path("branch")))
	h.ok("export", "w:two", h.path("two.sqsh"))
	h.ok("export", "w:two", "--to", h.path("out"))
	require.Equal(t, "yes\n", shell(t, soon, h.path("out"), `cat d/y | sed s/y/yes/`))
	restored := h.ok("restore", one, h.path("restored"))
	require.Equal(t, before, list(h.path("restored")))
	h.ok("umount", restored)
	h.ok("destroy", restored)
	h.ok("stop")
	require.Empty(t, mountsBelow(h.tmp))
	h.ok("mount", "w", ws) // the daemon starts by itself
	require.Equal(t, before, list(ws))
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)
	h.ok("umount", "w")
	h.ok("destroy", "w")
}

// userForeign has a tree with owners, devices and attributes that the host refuses the user: what root has exported
// comes out as the same bytes, and a change of it is the same as root's.
func userForeign(t *testing.T) {
	h := homeOf(t)
	from := os.Getenv("SNAPFS_E2E_FOREIGN")
	image := filepath.Join(from, "foreign.sqsh")
	h.ok("create", "w", "--from", image)
	h.ok("export", h.ok("snapshot", "w", "--wait", "stored"), h.path("same.sqsh"))
	require.Equal(t, digestOf(t, image), digestOf(t, h.path("same.sqsh")))
	if os.Geteuid() == 0 {
		return // most owners have no number here, and their files cannot be changed
	}
	ws := h.path("ws")
	h.ok("up", "w", ws)
	shell(t, soon, ws, moveAll)
	listing := func(dir string) string {
		return shell(t, soon, dir, `find . -path ./there -prune -o -printf '%P %M %U %G %n %l %T@\n' -name '*closed' -prune | sort; ls -ln there | sed 's/.*://'; stat -c '%t %T' there/* d/*`)
	}
	live := listing(ws)
	h.ok("snapshot", "w")
	require.Equal(t, live, listing(ws))
	id := h.ok("snapshot", "w", "--name", "stored", "--wait", "stored")
	require.Equal(t, live, listing(ws))
	shell(t, soon, ws, `[ "$(readlink there/moved-link)" = f ]; getfacl -c g | grep -q user:.*:rw-
		[ "$(stat -c %A:%t:%T there/moved-null)" = crw-r--r--:1:3 ]`)
	h.ok("stop")
	h.ok("up", "w", ws)
	require.Equal(t, live, listing(ws))
	// An image has them all as they were.
	h.ok("export", id, h.path("moved.sqsh"))
	require.Contains(t, shell(t, soon, h.tmp, `unsquashfs -lln moved.sqsh`), "-rwsr-sr-x 0/33")
	require.Equal(t, "bar", shell(t, soon, h.tmp, `rdsquashfs -x g moved.sqsh | sed -n 's/^trusted.foo=//p' | tr -d '\n'`))
}

func digestOf(t *testing.T, path string) string {
	f, err := os.Open(path)
	require.NoError(t, err)
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return string(sum.Sum(nil))
}

// userTwin does random operations in a workspace and in a directory of the host.
func userTwin(t *testing.T) {
	h := homeOf(t)
	seed := testseed.Of(t)
	p := newPair(h, "ws", "", "", twin.Config{Seed: seed})
	t.Cleanup(func() { shell(t, soon, h.tmp, `chmod -R u+rwx ws-plain`) }) // or it cannot be removed
	for round := range rounds(4, 20) {
		p.actor.Steps(200)
		p.compare()
		switch round % 4 {
		case 0:
			h.ok("snapshot", p.name)
		case 1:
			p.reopened(func() { h.ok("stop") })
		case 2:
			h.ok("snapshot", p.name, "--wait", "stored")
		default:
			p.reopened(func() {
				pid := h.pid()
				require.NoError(t, unix.Kill(pid, unix.SIGKILL))
				gone(t, pid)
			})
		}
		p.actor.Steps(100)
		p.compare()
	}
	p.end()
}

// userPosix runs the suite in a workspace: what passes in a directory of the host has to pass there.
func userPosix(t *testing.T) {
	h := homeOf(t)
	cases, err := posix.Cases()
	require.NoError(t, err)
	failed := map[string]map[string]string{}
	h.makeDir("host")
	h.ok("up", "ws", h.path("ws"))
	for _, dir := range []string{"host", "ws"} {
		failed[dir] = map[string]string{}
		for _, half := range []string{"prepare", "check"} {
			all, err := posix.Apart(t.Context(), half, h.path(dir))
			require.NoError(t, err)
			for _, o := range all {
				if o.Failed != "" && failed[dir][o.Name] == "" {
					failed[dir][o.Name] = o.Failed
				}
			}
		}
	}
	t.Logf("of %d cases %d pass on the host", len(cases), len(cases)-len(failed["host"]))
	for name, why := range failed["ws"] {
		if failed["host"][name] == "" {
			t.Errorf("%s: passes on the host, not in a workspace: %.300s", name, why)
		}
	}
}

// userKernel has the kernel's overlayfs show an upper in which nothing needs an override.
func userKernel(t *testing.T) {
	h := homeOf(t)
	base := h.makeDir("base")
	shell(t, soon, base, `umask 022; mkdir keep gone; echo 1 > keep/f; echo 2 > gone/f; echo 3 > old; ln -s old link`)
	h.ok("up", "w", h.path("ws"), "--from", base)
	shell(t, soon, h.path("ws"), `umask 022; rm -r gone; mkdir gone; echo new > gone/new; rm old; echo more >> keep/f; echo made > made; ln -s made l2; ln made hard; mkdir -p a/b`)
	want := shell(t, soon, h.path("ws"), `find . ! -type d -printf '%P %M %n %l\n' | sort; cat keep/f gone/new made`)
	h.ok("umount", "w")
	upper := strings.TrimSpace(shell(t, soon, h.dir, `ls -d uppers/*/upper | while read -r u; do [ -z "$(ls -A "$u")" ] || echo "$PWD/$u"; done`))
	require.NotContains(t, shell(t, soon, upper, `getfattr -R -h -d -m - .`), "snapfs.stat")
	got := shell(t, soon, h.tmp, `mkdir mnt work; unshare --user --map-root-user --mount bash -euc '
		mount -t overlay overlay -o "userxattr,lowerdir=$1,upperdir=$2,workdir=$PWD/work" mnt; cd mnt
		find . ! -type d -printf "%P %M %n %l\n" | sort; cat keep/f gone/new made' x "$1" "$2"; rm -rf work`, base, upper)
	require.Equal(t, want, got)
}
