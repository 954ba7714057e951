package fs_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pattern makes n bytes that differ from block to block.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>12) ^ byte(i*7)
	}
	return b
}

var fileBehaviours = map[string]behaviour{
	"ReadWrite": {
		seed: func(w *world) { w.write("f", "old contents") },
		check: func(w *world) {
			f := w.open("f", os.O_RDWR)
			_, err := f.WriteAt([]byte("NEW"), 4)
			w.must(err)
			w.wantText("f", "old NEWtents")
			w.write("g", "made here")
			w.wantText("g", "made here")
			big := pattern(3<<20 + 77)
			w.must(os.WriteFile(w.path("big"), big, 0o600))
			got, err := os.ReadFile(w.path("big"))
			if err != nil || !bytes.Equal(got, big) {
				w.Errorf("3 MiB: %d bytes come back, %v", len(got), err)
			}
		},
	},
	"TruncateOnOpen": {
		seed: func(w *world) { w.write("f", "a long line that must go") },
		check: func(w *world) {
			w.write("f", "short")
			w.wantText("f", "short")
			w.must(w.open("f", os.O_WRONLY|os.O_TRUNC).Close())
			w.wantText("f", "")
		},
	},
	"Truncate": {
		seed: func(w *world) { w.write("f", strings.Repeat("x", 10000)) },
		check: func(w *world) {
			w.must(os.Truncate(w.path("f"), 5))
			w.wantText("f", "xxxxx")
			w.must(os.Truncate(w.path("f"), 8))
			w.wantText("f", "xxxxx\x00\x00\x00")
			f := w.open("f", os.O_RDWR)
			w.must(f.Truncate(2))
			_, err := f.WriteAt([]byte("end"), 4)
			w.must(err)
			w.wantText("f", "xx\x00\x00end")
			w.want("negative", syscall.Truncate(w.path("f"), -1), syscall.EINVAL)
			w.want("too large", syscall.Truncate(w.path("f"), 1<<62), syscall.EFBIG)
			w.want("missing", syscall.Truncate(w.path("none"), 0), syscall.ENOENT)
		},
	},
	"SharedMmap": {
		seed: func(w *world) { w.write("f", strings.Repeat("m", 8192)) },
		check: func(w *world) {
			f, g := w.open("f", os.O_RDWR), w.open("f", os.O_RDWR)
			a, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			w.must(err)
			b, err := unix.Mmap(int(g.Fd()), 0, 8192, unix.PROT_READ, unix.MAP_SHARED)
			w.must(err)
			copy(a[4090:], "across a page")
			if got := string(b[4090:4103]); got != "across a page" {
				w.Errorf("the other mapping shows %q", got)
			}
			_, err = g.WriteAt([]byte("by write"), 100)
			w.must(err)
			if got := string(a[100:108]); got != "by write" {
				w.Errorf("the mapping shows %q after a write", got)
			}
			w.must(unix.Msync(a, unix.MS_SYNC))
			w.must(unix.Munmap(a))
			w.must(unix.Munmap(b))
			w.must(f.Close())
			got, err := os.ReadFile(w.path("f"))
			if err != nil || string(got[4090:4103]) != "across a page" {
				w.Errorf("after msync: %v", err)
			}
		},
	},
	"AppendFromMany": {
		seed: func(w *world) { w.write("log", "start\n") },
		check: func(w *world) {
			const writers, lines = 8, 50
			var wg sync.WaitGroup
			for i := range writers {
				f := w.open("log", os.O_WRONLY|os.O_APPEND)
				wg.Go(func() {
					for j := range lines {
						if _, err := fmt.Fprintf(f, "writer %d line %d\n", i, j); err != nil {
							w.Error(err)
						}
					}
				})
			}
			wg.Wait()
			got, err := os.ReadFile(w.path("log"))
			w.must(err)
			seen := map[string]bool{}
			for line := range strings.Lines(string(got)) {
				seen[line] = true
			}
			if len(seen) != writers*lines+1 || !seen["start\n"] {
				w.Errorf("%d different lines of %d", len(seen), writers*lines+1)
			}
		},
	},
	"UnlinkWhileOpen": {
		seed: func(w *world) { w.write("f", "still here") },
		check: func(w *world) {
			f := w.open("f", os.O_RDWR)
			w.must(os.Remove(w.path("f")))
			_, err := f.WriteAt([]byte("STILL"), 0)
			w.must(err)
			buf := make([]byte, 10)
			if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != "STILL here" {
				w.Errorf("got %q, %v", buf, err)
			}
			var st syscall.Stat_t
			w.must(syscall.Fstat(int(f.Fd()), &st))
			if st.Nlink != 0 || st.Size != 10 {
				w.Errorf("nlink %d, size %d; want 0, 10", st.Nlink, st.Size)
			}
			w.must(f.Truncate(3))
			w.must(f.Chmod(0o600))
			w.must(syscall.Fstat(int(f.Fd()), &st))
			if st.Size != 3 || st.Mode&0o777 != 0o600 {
				w.Errorf("size %d, mode %o; want 3, 600", st.Size, st.Mode&0o777)
			}
			w.write("f", "another")
			w.wantText("f", "another")
		},
	},
	"RenameOverOpen": {
		seed: func(w *world) { w.write("a", "from a"); w.write("b", "from b") },
		check: func(w *world) {
			f := w.open("b", os.O_RDWR)
			w.must(os.Rename(w.path("a"), w.path("b")))
			buf := make([]byte, 6)
			if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != "from b" {
				w.Errorf("the replaced file reads %q, %v", buf, err)
			}
			_, err := f.WriteAt([]byte("gone b"), 0)
			w.must(err)
			w.wantText("b", "from a")
			var st syscall.Stat_t
			w.must(syscall.Fstat(int(f.Fd()), &st))
			if st.Nlink != 0 {
				w.Errorf("nlink %d of a replaced file", st.Nlink)
			}
		},
	},
	"Holes": {
		seed: func(w *world) {
			f := w.open("f", os.O_CREATE|os.O_RDWR)
			_, err := f.WriteAt([]byte("data"), 1<<20)
			w.must(err)
			w.must(f.Close())
		},
		check: func(w *world) {
			f := w.open("f", os.O_RDWR)
			seek := func(off int64, whence int, want int64) {
				w.Helper()
				got, err := f.Seek(off, whence)
				if err != nil || got != want {
					w.Errorf("seek %d from %d: got %d, %v; want %d", whence, off, got, err, want)
				}
			}
			seek(0, unix.SEEK_HOLE, 0)
			seek(0, unix.SEEK_DATA, 1<<20)
			seek(1<<20, unix.SEEK_HOLE, 1<<20+4)
			_, err := f.Seek(2<<20, unix.SEEK_DATA)
			w.want("beyond the end", err, syscall.ENXIO)
			w.must(unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, 1<<20, 4096))
			buf := make([]byte, 4)
			if _, err := f.ReadAt(buf, 1<<20); err != nil || !bytes.Equal(buf, make([]byte, 4)) {
				w.Errorf("a punched hole reads %q, %v", buf, err)
			}
			if st := w.stat("f"); st.Blocks > 64 {
				w.Errorf("%d blocks for a hole", st.Blocks)
			}
		},
	},
	"Fallocate": {
		seed: func(w *world) { w.write("f", "12345678") },
		check: func(w *world) {
			f := w.open("f", os.O_RDWR)
			fd := int(f.Fd())
			w.must(unix.Fallocate(fd, 0, 0, 100000))
			w.must(unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
			if st := w.stat("f"); st.Size != 100000 || st.Blocks < 2048 {
				w.Errorf("size %d, blocks %d; want 100000, at least 2048", st.Size, st.Blocks)
			}
			w.must(unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, 2, 4))
			buf := make([]byte, 8)
			if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != "12\x00\x00\x00\x0078" {
				w.Errorf("got %q, %v", buf, err)
			}
			_, err := f.WriteAt([]byte("data"), 70000)
			w.must(err)
			w.must(unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 65536))
			if hole, err := unix.Seek(fd, 0, unix.SEEK_DATA); err != nil || hole < 65536 {
				w.Errorf("data at %d after punching, %v", hole, err)
			}
			w.must(unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, 90000, 100000))
			if st := w.stat("f"); st.Size != 100000 {
				w.Errorf("size %d, want 100000", st.Size)
			}
			w.want("punch without keep", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE, 0, 4096), syscall.EOPNOTSUPP)
			// The kernel's FUSE client does not pass these on.
			w.want("collapse", unix.Fallocate(fd, unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096), syscall.EOPNOTSUPP)
			w.want("insert", unix.Fallocate(fd, unix.FALLOC_FL_INSERT_RANGE, 0, 4096), syscall.EOPNOTSUPP)
		},
	},
	"CopyFileRange": {
		seed: func(w *world) { w.must(os.WriteFile(w.path("src"), pattern(300000), 0o644)) },
		check: func(w *world) {
			src, dst := w.open("src", os.O_RDONLY), w.open("dst", os.O_CREATE|os.O_RDWR)
			var from, to int64 = 1000, 50
			n, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, 200000, 0)
			if err != nil || n != 200000 {
				w.Fatalf("copied %d, %v", n, err)
			}
			got, err := os.ReadFile(w.path("dst"))
			if err != nil || len(got) != 200050 || !bytes.Equal(got[50:], pattern(300000)[1000:201000]) {
				w.Errorf("%d bytes, %v", len(got), err)
			}
		},
	},
	"DirectAndBuffered": {
		seed: func(w *world) { w.must(os.WriteFile(w.path("f"), bytes.Repeat([]byte("o"), 16384), 0o644)) },
		check: func(w *world) {
			direct, buffered := w.open("f", os.O_RDWR|unix.O_DIRECT), w.open("f", os.O_RDWR)
			page := aligned(4096)
			if _, err := buffered.ReadAt(page, 4096); err != nil { // now cached
				w.Fatal(err)
			}
			copy(page, bytes.Repeat([]byte("D"), 4096))
			if _, err := direct.WriteAt(page, 4096); err != nil {
				w.Fatal(err)
			}
			got := make([]byte, 4096)
			if _, err := buffered.ReadAt(got, 4096); err != nil || got[0] != 'D' || got[4095] != 'D' {
				w.Errorf("a buffered read after a direct write: %.8q, %v", got, err)
			}
			if _, err := buffered.WriteAt(bytes.Repeat([]byte("B"), 4096), 8192); err != nil {
				w.Fatal(err)
			}
			if _, err := direct.ReadAt(page, 8192); err != nil || page[0] != 'B' || page[4095] != 'B' {
				w.Errorf("a direct read after a buffered write: %.8q, %v", page, err)
			}
		},
	},
	"Locks": {
		seed: func(w *world) { w.write("f", "lock me") },
		check: func(w *world) {
			a, b := w.open("f", os.O_RDWR), w.open("f", os.O_RDWR)
			w.must(unix.Flock(int(a.Fd()), unix.LOCK_EX))
			w.want("flock", unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB), syscall.EAGAIN)
			w.must(unix.Flock(int(a.Fd()), unix.LOCK_UN))
			w.must(unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB))
			ofd := func(f *os.File, typ int16) error {
				return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: typ, Start: 0, Len: 4})
			}
			w.must(ofd(a, unix.F_WRLCK))
			w.want("fcntl", ofd(b, unix.F_WRLCK), syscall.EAGAIN)
			w.must(a.Close())
			w.want("fcntl after close", ofd(b, unix.F_WRLCK), 0)
		},
	},
	"Execute": {
		seed: func(w *world) {
			text, err := os.ReadFile("/bin/true")
			w.must(err)
			w.must(os.WriteFile(w.path("prog"), text, 0o755))
			w.must(os.WriteFile(w.path("script"), []byte("#!/bin/sh\necho said\n"), 0o755))
		},
		check: func(w *world) {
			w.mustSh(0, "./prog")
			if out := w.mustSh(12345, "./script"); out != "said" {
				w.Errorf("script says %q", out)
			}
			w.must(os.Chmod(w.path("script"), 0o644))
			if _, err := w.sh(12345, "./script"); err == nil {
				w.Error("a file without x is executed")
			}
			w.mustSh(0, "cp prog copy && ./copy")
		},
	},
	"SyncCalls": {
		seed: func(w *world) { w.write("f", "x") },
		check: func(w *world) {
			f := w.open("f", os.O_RDWR)
			_, err := f.WriteAt([]byte("yz"), 0)
			w.must(err)
			w.must(unix.Fsync(int(f.Fd())))
			w.must(unix.Fdatasync(int(f.Fd())))
			w.must(unix.Syncfs(int(f.Fd())))
			d := w.open(".", os.O_RDONLY)
			w.must(unix.Fsync(int(d.Fd())))
			w.wantText("f", "yz")
		},
	},
	"WriteTimes": {
		seed: func(w *world) {
			w.write("f", "x")
			old := time.Unix(1_000_000_000, 0)
			w.must(os.Chtimes(w.path("f"), old, old))
		},
		check: func(w *world) {
			before := w.stat("f")
			if before.Mtim.Sec != 1_000_000_000 {
				w.Errorf("mtime %d", before.Mtim.Sec)
			}
			w.tick(before.Ctim)
			f := w.open("f", os.O_WRONLY)
			_, err := f.Write([]byte("y"))
			w.must(err)
			after := w.stat("f")
			if after.Mtim.Sec == before.Mtim.Sec || after.Ctim == before.Ctim {
				w.Errorf("a write leaves mtime %v, ctime %v", after.Mtim, after.Ctim)
			}
		},
	},
}

// aligned makes a buffer that direct I/O accepts.
func aligned(n int) []byte {
	b := make([]byte, n+4096)
	off := 4096 - int(uintptr(unsafe.Pointer(&b[0]))%4096)
	return b[off : off+n : off+n]
}
