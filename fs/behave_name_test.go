package fs_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var nameBehaviours = map[string]behaviour{
	"Exclusive": {
		seed: func(w *world) { w.write("f", "x") },
		check: func(w *world) {
			_, err := unix.Open(w.path("f"), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o644)
			w.want("O_EXCL", err, syscall.EEXIST)
			fd, err := unix.Open(w.path("none"), unix.O_CREAT|unix.O_WRONLY|unix.O_EXCL, 0)
			w.must(err)
			_, err = unix.Write(fd, []byte("mode 0 is for the next one"))
			w.must(err)
			w.must(unix.Close(fd))
			if st := w.stat("none"); st.Mode&0o7777 != 0 || st.Size == 0 {
				w.Errorf("mode %o, size %d", st.Mode, st.Size)
			}
			fd, err = unix.Open(w.path("ro"), unix.O_CREAT|unix.O_RDONLY, 0o600)
			w.must(err)
			w.must(unix.Close(fd))
			_, err = unix.Open(w.path("ro/x"), unix.O_CREAT|unix.O_RDONLY, 0o600)
			w.want("below a file", err, syscall.ENOTDIR)
		},
	},
	"Symlinks": {
		seed: func(w *world) {
			w.must(os.Symlink(strings.Repeat("t", 4095), w.path("long")))
			w.must(os.Symlink("f", w.path("rel")))
			w.write("f", "target")
		},
		check: func(w *world) {
			for name, n := range map[string]int{"long": 4095, "rel": 1} {
				target, err := os.Readlink(w.path(name))
				if err != nil || len(target) != n || w.stat(name).Size != int64(n) {
					w.Errorf("%s: %d bytes, %v, size %d", name, len(target), err, w.stat(name).Size)
				}
			}
			w.wantText("rel", "target")
			w.must(os.Symlink(strings.Repeat("n", 4095), w.path("long2")))
			w.want("too long", os.Symlink(strings.Repeat("n", 4096), w.path("x")), syscall.ENAMETOOLONG)
			w.want("over a name", os.Symlink("x", w.path("f")), syscall.EEXIST)
			w.must(os.Lchown(w.path("rel"), 7, 8))
			if st := w.stat("rel"); st.Uid != 7 || st.Gid != 8 || st.Mode&syscall.S_IFMT != syscall.S_IFLNK {
				w.Errorf("after lchown: %d:%d mode %o", st.Uid, st.Gid, st.Mode)
			}
		},
	},
	"LongNames": {
		seed: func(w *world) { w.write(strings.Repeat("s", 255), "seeded") },
		check: func(w *world) {
			w.wantText(strings.Repeat("s", 255), "seeded")
			name := strings.Repeat("n", 255)
			w.write(name, "made")
			w.must(os.Rename(w.path(name), w.path(strings.Repeat("m", 255))))
			w.must(os.Remove(w.path(strings.Repeat("m", 255))))
			w.must(os.Remove(w.path(strings.Repeat("s", 255))))
			_, err := os.Lstat(w.path(strings.Repeat("s", 255)))
			w.want("removed", err, syscall.ENOENT)
			_, err = os.Lstat(w.path(strings.Repeat("n", 256)))
			w.want("256 bytes", err, syscall.ENAMETOOLONG)
			w.want("mkdir of 256 bytes", os.Mkdir(w.path(strings.Repeat("n", 256)), 0o755), syscall.ENAMETOOLONG)
		},
	},
	"DeepPaths": {
		check: func(w *world) {
			const depth = 40 // of 200 bytes: well beyond PATH_MAX
			name := strings.Repeat("d", 200)
			fd, err := unix.Open(w.dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			w.must(err)
			for range depth {
				w.must(unix.Mkdirat(fd, name, 0o755))
				next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
				w.must(err)
				w.must(unix.Close(fd))
				fd = next
			}
			f, err := unix.Openat(fd, "leaf", unix.O_CREAT|unix.O_RDWR, 0o644)
			w.must(err)
			_, err = unix.Write(f, []byte("deep"))
			w.must(err)
			w.must(unix.Close(f))
			var st unix.Stat_t
			w.must(unix.Fstatat(fd, "leaf", &st, 0))
			w.must(unix.Renameat(fd, "leaf", fd, "leaf2"))
			w.must(unix.Close(fd))
			if out := w.mustSh(0, "find . -type f | wc -l && rm -rf ./ddd* && ls | wc -l"); out != "1\n0" {
				w.Errorf("find and rm: %q", out)
			}
		},
	},
	"PathMax": { // absolute paths of 4,095 bytes, the longest that the kernel takes
		check: func(w *world) {
			name := func(n int) string { return strings.Repeat("p", n) }
			dir, path := "", w.dir
			for len(path)+256+2 < unix.PathMax {
				n := min(255, unix.PathMax-3-len(path)-1)
				dir = filepath.Join(dir, name(n))
				path += "/" + name(n)
			}
			// Not by its own path: MkdirAll works on the way down.
			w.must(os.MkdirAll(filepath.Join(w.dir, dir), 0o755))
			left := unix.PathMax - 1 - len(path) - 1
			longest := path + "/" + name(left)
			w.must(os.WriteFile(longest, []byte("far"), 0o644))
			got, err := os.ReadFile(longest)
			if len(longest) != 4095 || err != nil || string(got) != "far" {
				w.Errorf("path of %d bytes: got %q, %v", len(longest), got, err)
			}
			w.must(os.Chmod(longest, 0o600))
			other := path + "/" + strings.Repeat("q", left)
			w.must(os.Rename(longest, other))
			w.must(os.Symlink(other, longest))
			if target, err := os.Readlink(longest); err != nil || target != other {
				w.Errorf("a link to %d bytes: %d bytes, %v", len(other), len(target), err)
			}
			w.must(os.Remove(longest))
			_, err = os.Lstat(longest + "p")
			w.want("one byte more", err, syscall.ENAMETOOLONG)
			w.must(os.RemoveAll(filepath.Join(w.dir, name(255))))
		},
	},
	"Rename": {
		seed: func(w *world) {
			w.must(os.MkdirAll(w.path("d/sub/deep"), 0o755))
			w.write("d/sub/f", "moved along")
			w.must(os.Mkdir(w.path("empty"), 0o755))
			w.must(os.Mkdir(w.path("full"), 0o755))
			w.write("full/x", "x")
			w.write("f", "file")
		},
		check: func(w *world) {
			ino := w.stat("d").Ino
			w.must(os.Rename(w.path("d"), w.path("e")))
			w.wantText("e/sub/f", "moved along")
			if w.stat("e").Ino != ino {
				w.Error("rename changes the inode number of a directory")
			}
			w.must(unix.Rename(w.path("e"), w.path("empty"))) // os.Rename refuses
			w.wantText("empty/sub/f", "moved along")
			w.want("onto a full directory", unix.Rename(w.path("empty"), w.path("full")), syscall.ENOTEMPTY)
			w.want("into itself", unix.Rename(w.path("empty"), w.path("empty/sub/deep/x")), syscall.EINVAL)
			w.want("file onto directory", unix.Rename(w.path("f"), w.path("full")), syscall.EISDIR)
			w.want("directory onto file", unix.Rename(w.path("full"), w.path("f")), syscall.ENOTDIR)
			at := func(a, b string, flags uint) error {
				return unix.Renameat2(unix.AT_FDCWD, w.path(a), unix.AT_FDCWD, w.path(b), flags)
			}
			w.want("NOREPLACE", at("f", "full", unix.RENAME_NOREPLACE), syscall.EEXIST)
			w.must(at("f", "full", unix.RENAME_EXCHANGE))
			w.wantText("full", "file")
			w.wantText("f/x", "x")
			w.want("EXCHANGE with nothing", at("f", "none", unix.RENAME_EXCHANGE), syscall.ENOENT)
			w.must(at("full", "free", unix.RENAME_NOREPLACE))
			w.wantText("free", "file")
		},
	},
	"Tmpfile": {
		check: func(w *world) {
			fd, err := unix.Open(w.dir, unix.O_TMPFILE|unix.O_RDWR, 0o640)
			w.must(err)
			_, err = unix.Write(fd, []byte("nameless"))
			w.must(err)
			var st unix.Stat_t
			w.must(unix.Fstat(fd, &st))
			if st.Nlink != 0 || st.Size != 8 {
				w.Errorf("nlink %d, size %d", st.Nlink, st.Size)
			}
			w.must(unix.Linkat(fd, "", unix.AT_FDCWD, w.path("named"), unix.AT_EMPTY_PATH))
			w.must(unix.Close(fd))
			w.wantText("named", "nameless")
			if st := w.stat("named"); st.Nlink != 1 {
				w.Errorf("nlink %d after linkat", st.Nlink)
			}
		},
	},
	"RenameWhiteout": {
		seed: func(w *world) {
			w.write("f", "file")
			w.write("over", "goes")
			w.must(os.Mkdir(w.path("d"), 0o755))
			w.write("d/x", "x")
		},
		check: func(w *world) {
			at := func(a, b string) error {
				return unix.Renameat2(unix.AT_FDCWD, w.path(a), unix.AT_FDCWD, w.path(b), unix.RENAME_WHITEOUT)
			}
			w.must(at("f", "g"))
			w.must(at("d", "e"))
			w.must(at("g", "over"))
			w.wantText("over", "file")
			w.wantText("e/x", "x")
			for _, name := range []string{"f", "d", "g"} {
				if st := w.stat(name); st.Mode&syscall.S_IFMT != syscall.S_IFCHR || st.Rdev != 0 {
					w.Errorf("%s: mode %o, device %x; want a character device 0/0", name, st.Mode, st.Rdev)
				}
			}
			// The type in the listing, without which an overlayfs on top does not see the whiteout.
			if out := w.mustSh(0, "find . -type c | sort | tr '\\n' ' '"); out != "./d ./f ./g" {
				w.Errorf("character devices listed: %q", out)
			}
			w.must(os.Remove(w.path("f")))
			w.must(at("over", "f"))
			w.wantText("f", "file")
		},
	},
	"SpecialFiles": {
		seed: func(w *world) { w.must(unix.Mkfifo(w.path("pipe"), 0o644)) },
		check: func(w *world) {
			if st := w.stat("pipe"); st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
				w.Errorf("mode %o", st.Mode)
			}
			w.must(unix.Mknod(w.path("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
			out := w.mustSh(0, "echo x >null && stat -c %t:%T null && (echo through >pipe & cat pipe)")
			if out != "1:3\nthrough" {
				w.Errorf("got %q", out)
			}
			w.must(unix.Mknod(w.path("blk"), unix.S_IFBLK|0o600, int(unix.Mkdev(259, 70000))))
			if st := w.stat("blk"); st.Rdev != unix.Mkdev(259, 70000) {
				w.Errorf("rdev %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			w.must(err)
			// The path of a socket is short: bind where we stand.
			dir := w.open(".", unix.O_PATH)
			w.must(unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), "sock")}))
			w.must(unix.Close(fd))
			if st := w.stat("sock"); st.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
				w.Errorf("mode %o", st.Mode)
			}
			w.must(os.Remove(w.path("sock")))
		},
	},
}
