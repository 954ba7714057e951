package fs_test

import (
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var metaBehaviours = map[string]behaviour{
	"ModeAndOwner": {
		seed: func(w *world) { w.write("f", "contents stay"); w.must(os.Mkdir(w.path("d"), 0o755)) },
		check: func(w *world) {
			ino := w.stat("f").Ino
			w.must(os.Chmod(w.path("f"), 0o640))
			w.must(os.Chown(w.path("f"), 1001, 1002))
			w.must(os.Chmod(w.path("d"), 0o700|os.ModeSticky))
			st := w.stat("f")
			if st.Mode&0o7777 != 0o640 || st.Uid != 1001 || st.Gid != 1002 || st.Ino != ino {
				w.Errorf("mode %o owner %d:%d ino %d, was %d", st.Mode&0o7777, st.Uid, st.Gid, st.Ino, ino)
			}
			if st := w.stat("d"); st.Mode&0o7777 != 0o1700 {
				w.Errorf("mode %o", st.Mode&0o7777)
			}
			w.wantText("f", "contents stay")
			if _, err := w.sh(1003, "cat f"); err == nil {
				w.Error("another user may read it")
			}
			if out := w.mustSh(1001, "cat f"); out != "contents stay" {
				w.Errorf("the owner reads %q", out)
			}
		},
	},
	"Times": {
		seed: func(w *world) { w.write("f", "x"); w.must(os.Symlink("f", w.path("l"))) },
		check: func(w *world) {
			at, mt := time.Unix(-5, 123456789), time.Unix(5_000_000_000, 987654321)
			w.must(os.Chtimes(w.path("f"), at, mt))
			st := w.stat("f")
			if st.Atim.Sec != -5 || st.Atim.Nsec != 123456789 || st.Mtim.Sec != 5_000_000_000 || st.Mtim.Nsec != 987654321 {
				w.Errorf("atime %v, mtime %v", st.Atim, st.Mtim)
			}
			ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
			w.must(unix.UtimesNanoAt(unix.AT_FDCWD, w.path("f"), ts, 0))
			st = w.stat("f")
			if d := time.Now().Unix() - st.Mtim.Sec; st.Atim.Sec != -5 || d < -5 || d > 60 {
				w.Errorf("atime %v, mtime %d seconds ago", st.Atim, d)
			}
			ts = []unix.Timespec{{Sec: 7}, {Sec: 9}}
			w.must(unix.UtimesNanoAt(unix.AT_FDCWD, w.path("l"), ts, unix.AT_SYMLINK_NOFOLLOW))
			if st := w.stat("l"); st.Mtim.Sec != 9 {
				w.Errorf("mtime of the symlink %v", st.Mtim)
			}
			var sx unix.Statx_t
			w.must(unix.Statx(unix.AT_FDCWD, w.path("f"), 0, unix.STATX_BTIME|unix.STATX_BASIC_STATS, &sx))
			if sx.Mask&unix.STATX_BTIME != 0 && sx.Btime.Sec == 0 {
				w.Error("birth time offered but zero")
			}
		},
	},
	"Xattrs": {
		seed: func(w *world) {
			w.write("f", "x")
			w.must(unix.Setxattr(w.path("f"), "user.seeded", []byte("by seed"), 0))
			w.must(os.Symlink("/"+strings.Repeat("x", 20), w.path("l")))
		},
		check: func(w *world) {
			buf := make([]byte, 70000)
			n, err := unix.Getxattr(w.path("f"), "user.seeded", buf)
			if err != nil || string(buf[:n]) != "by seed" {
				w.Errorf("got %q, %v", buf[:max(n, 0)], err)
			}
			w.must(unix.Setxattr(w.path("f"), "user.a", []byte("value"), unix.XATTR_CREATE))
			w.want("create twice", unix.Setxattr(w.path("f"), "user.a", nil, unix.XATTR_CREATE), syscall.EEXIST)
			w.want("replace nothing", unix.Setxattr(w.path("f"), "user.b", nil, unix.XATTR_REPLACE), syscall.ENODATA)
			w.must(unix.Setxattr(w.path("f"), "user.empty", nil, 0))
			w.must(unix.Setxattr(w.path("f"), "trusted.t", []byte("root only"), 0))
			n, err = unix.Listxattr(w.path("f"), buf)
			w.must(err)
			for _, name := range []string{"user.a", "user.empty", "user.seeded", "trusted.t"} {
				if !strings.Contains("\x00"+string(buf[:n]), "\x00"+name+"\x00") {
					w.Errorf("%s is not in %q", name, buf[:n])
				}
			}
			n, err = unix.Getxattr(w.path("f"), "user.a", nil)
			if err != nil || n != 5 {
				w.Errorf("size %d, %v", n, err)
			}
			_, err = unix.Getxattr(w.path("f"), "user.a", make([]byte, 2))
			w.want("small buffer", err, syscall.ERANGE)
			w.must(unix.Removexattr(w.path("f"), "user.a"))
			_, err = unix.Getxattr(w.path("f"), "user.a", buf)
			w.want("removed", err, syscall.ENODATA)
			w.want("remove nothing", unix.Removexattr(w.path("f"), "user.a"), syscall.ENODATA)
			w.want("user on a symlink", unix.Lsetxattr(w.path("l"), "user.x", []byte("x"), 0), syscall.EPERM)
			w.must(unix.Lsetxattr(w.path("l"), "trusted.x", []byte("on the link"), 0))
		},
	},
	"SymlinkIntoTheMount": { // setfattr -h on a link with an absolute target inside the mount must not follow it
		check: func(w *world) {
			w.write("f", "x")
			w.must(os.Symlink(w.path("f"), w.path("abs")))
			w.mustSh(0, "timeout 10 setfattr -h -n trusted.mark -v here abs && getfattr -h -n trusted.mark abs")
			if _, err := w.sh(0, "getfattr -n trusted.mark f"); err == nil {
				w.Error("the attribute went to the target")
			}
		},
	},
	"ACLs": {
		seed: func(w *world) { w.write("f", "x"); w.must(os.Mkdir(w.path("d"), 0o755)) },
		check: func(w *world) {
			w.must(os.Chmod(w.path("f"), 0o600))
			w.mustSh(0, "setfacl -m u:4242:r f && setfacl -d -m u:4242:rwx,o::- d")
			if out := w.mustSh(4242, "cat f"); out != "x" {
				w.Errorf("the named user reads %q", out)
			}
			if _, err := w.sh(4243, "cat f"); err == nil {
				w.Error("another user reads it too")
			}
			if out := w.mustSh(0, "getfacl -cn f"); !strings.Contains(out, "user:4242:r--") {
				w.Errorf("getfacl: %s", out)
			}
			// The default ACL replaces the umask and is inherited.
			if out := w.mustSh(0, "umask 077; >d/n; mkdir d/m; getfacl -cn d/n d/m"); !strings.Contains(out, "user:4242:rwx") ||
				!strings.Contains(out, "default:user:4242:rwx") || !strings.Contains(out, "mask::rw-") {
				w.Errorf("inherited: %s", out)
			}
			w.mustSh(0, "setfacl -b f")
			if _, err := w.sh(4242, "cat f"); err == nil {
				w.Error("a removed ACL still counts")
			}
		},
	},
	"Umask": {
		check: func(w *world) {
			if out := w.mustSh(0, "umask 027; >f; mkdir d; mkfifo p; stat -c %a f d p"); out != "640\n750\n640" {
				w.Errorf("modes %q", out)
			}
		},
	},
	"SetgidDirectory": {
		seed: func(w *world) { w.must(os.Mkdir(w.path("d"), 0o755)) },
		check: func(w *world) {
			w.must(os.Chown(w.path("d"), 0, 777))
			w.must(os.Chmod(w.path("d"), 0o777|os.ModeSetgid))
			w.mustSh(500, "umask 022; >d/f; mkdir d/s")
			if st := w.stat("d/f"); st.Gid != 777 || st.Uid != 500 || st.Mode&0o7777 != 0o644 {
				w.Errorf("file %d:%d %o", st.Uid, st.Gid, st.Mode&0o7777)
			}
			if st := w.stat("d/s"); st.Gid != 777 || st.Mode&0o7777 != 0o2755 {
				w.Errorf("directory gid %d, mode %o", st.Gid, st.Mode&0o7777)
			}
		},
	},
	"StickyDirectory": {
		seed: func(w *world) { w.must(os.Mkdir(w.path("d"), 0o755)) },
		check: func(w *world) {
			w.must(os.Chmod(w.path("d"), 0o777|os.ModeSticky))
			w.mustSh(600, ">d/mine")
			if _, err := w.sh(601, "rm -f d/mine"); err == nil {
				w.Error("another user removes it")
			}
			if _, err := w.sh(601, "mv d/mine d/yours"); err == nil {
				w.Error("another user renames it")
			}
			w.mustSh(600, "rm d/mine")
		},
	},
	"SetuidCleared": {
		seed: func(w *world) {
			for _, name := range []string{"written", "truncated", "chowned", "byroot", "acl"} {
				w.write(name, "text")
				w.must(os.Chmod(w.path(name), 0o777|os.ModeSetuid|os.ModeSetgid))
			}
		},
		check: func(w *world) {
			const set = syscall.S_ISUID | syscall.S_ISGID
			w.mustSh(900, "echo x >>written; : >truncated")
			w.must(os.Chown(w.path("chowned"), 5, 5))
			for _, name := range []string{"written", "truncated", "chowned"} {
				if m := w.stat(name).Mode; m&set != 0 {
					w.Errorf("%s keeps %o", name, m&0o7777)
				}
			}
			w.mustSh(0, "echo x >>byroot")
			if m := w.stat("byroot").Mode; m&set != set {
				w.Errorf("root's write clears %o", m&0o7777)
			}
			w.must(os.Chown(w.path("acl"), 900, 901))
			w.must(os.Chmod(w.path("acl"), 0o755|os.ModeSetgid))
			w.mustSh(900, "setfacl -m u:4242:r acl")
			if m := w.stat("acl").Mode; m&syscall.S_ISGID != 0 {
				w.Errorf("an ACL set from outside the group leaves %o", m&0o7777)
			}
		},
	},
	"CapabilityCleared": {
		seed: func(w *world) {
			w.write("f", "x")
			// struct vfs_cap_data, version 2, permitted CAP_NET_RAW
			caps := "\x00\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
			w.must(unix.Setxattr(w.path("f"), "security.capability", []byte(caps), 0))
		},
		check: func(w *world) {
			n, err := unix.Getxattr(w.path("f"), "security.capability", make([]byte, 64))
			if err != nil || n != 20 {
				w.Errorf("%d bytes, %v", n, err)
			}
			f := w.open("f", os.O_WRONLY|os.O_APPEND)
			_, err = f.WriteString("y")
			w.must(err)
			_, err = unix.Getxattr(w.path("f"), "security.capability", make([]byte, 64))
			w.want("after a write", err, syscall.ENODATA)
		},
	},
	"Statfs": {
		check: func(w *world) {
			var st, host unix.Statfs_t
			w.must(unix.Statfs(w.dir, &st))
			w.must(unix.Statfs(w.fs.Upper, &host))
			if st.Blocks*uint64(st.Frsize) != host.Blocks*uint64(host.Frsize) || st.Namelen != 255 {
				w.Errorf("%d blocks of %d, names of %d", st.Blocks, st.Frsize, st.Namelen)
			}
		},
	},
	"Flags": { // FS_IOC_GETFLAGS
		seed: func(w *world) { w.write("f", "x") },
		check: func(w *world) {
			_, err := unix.IoctlGetInt(int(w.open("f", os.O_RDONLY).Fd()), unix.FS_IOC_GETFLAGS)
			w.want("ioctl", err, syscall.ENOTTY)
		},
	},
}
