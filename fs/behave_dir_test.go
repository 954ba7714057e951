package fs_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var dirBehaviours = map[string]behaviour{
	"ListingUnderChange": {
		seed: func(w *world) {
			for i := range 500 {
				w.write(fmt.Sprintf("stay%03d", i), "")
				w.write(fmt.Sprintf("go%03d", i), "")
			}
		},
		check: func(w *world) {
			d := w.open(".", os.O_RDONLY)
			seen := map[string]int{}
			for round := 0; ; round++ {
				names, err := d.Readdirnames(50)
				for _, n := range names {
					seen[n]++
				}
				if err == io.EOF { //nolint:errorlint // as documented
					break
				}
				w.must(err)
				if round < 50 {
					for i := range 10 {
						w.must(os.Remove(w.path(fmt.Sprintf("go%03d", round*10+i))))
						w.write(fmt.Sprintf("new%03d", round*10+i), "")
					}
				}
			}
			for i := range 500 {
				if n := seen[fmt.Sprintf("stay%03d", i)]; n != 1 {
					w.Errorf("stay%03d is listed %d times", i, n)
				}
			}
			for name, n := range seen {
				if n > 1 {
					w.Errorf("%s is listed %d times", name, n)
				}
			}
			entries, err := os.ReadDir(w.dir)
			if err != nil || len(entries) != 1000 {
				w.Errorf("%d entries in the end, %v; want 1000", len(entries), err)
			}
		},
	},
	"NeverEmpty": { // a directory that holds files must not list empty while others make and remove files in it
		seed: func(w *world) { w.write("constant", "") },
		check: func(w *world) {
			var stop atomic.Bool
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					for !stop.Load() {
						name := w.path("t" + strconv.Itoa(i))
						_ = os.WriteFile(name, nil, 0o644) // what matters is what readers see
						_ = os.Remove(name)
					}
				})
			}
			for range 300 {
				entries, err := os.ReadDir(w.dir)
				if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "constant" }) {
					w.Errorf("%d entries, constant not among them, %v", len(entries), err)
					break
				}
			}
			stop.Store(true)
			wg.Wait()
		},
	},
	"Seekdir": {
		seed: func(w *world) {
			for i := range 3000 {
				w.write(fmt.Sprintf("name-%05d", i), "")
			}
		},
		check: func(w *world) {
			d := w.open(".", os.O_RDONLY)
			type mark struct {
				off  int64 // where the listing goes on after name
				name string
			}
			var all []mark
			buf := make([]byte, 8192)
			for {
				n, err := unix.Getdents(int(d.Fd()), buf)
				w.must(err)
				if n == 0 {
					break
				}
				for b := buf[:n]; len(b) > 0; {
					off, name, size := dirent(b)
					all = append(all, mark{off, name})
					b = b[size:]
				}
			}
			if len(all) != 3002 {
				w.Fatalf("%d entries, want 3002", len(all))
			}
			for _, i := range []int{0, 1, 700, 1500, 2998, 3000} {
				_, err := d.Seek(all[i].off, io.SeekStart)
				w.must(err)
				n, err := unix.Getdents(int(d.Fd()), buf)
				if err != nil || n == 0 {
					w.Errorf("after %s: %d bytes, %v", all[i].name, n, err)
					continue
				}
				if _, name, _ := dirent(buf); name != all[i+1].name {
					w.Errorf("after %s comes %s, want %s", all[i].name, name, all[i+1].name)
				}
			}
			_, err := d.Seek(0, io.SeekStart)
			w.must(err)
			names, err := d.Readdirnames(-1)
			if err != nil || len(names) != 3000 {
				w.Errorf("after rewinding: %d names, %v", len(names), err)
			}
		},
	},
	"MkdirRmdir": {
		seed: func(w *world) {
			w.must(os.Mkdir(w.path("d"), 0o755))
			w.write("d/f", "x")
			w.must(os.Mkdir(w.path("void"), 0o755))
		},
		check: func(w *world) {
			w.want("full", syscall.Rmdir(w.path("d")), syscall.ENOTEMPTY)
			w.must(os.Remove(w.path("d/f")))
			w.must(syscall.Rmdir(w.path("d")))
			w.must(syscall.Rmdir(w.path("void")))
			w.want("gone", syscall.Rmdir(w.path("d")), syscall.ENOENT)
			before := w.stat(".")
			w.must(os.Mkdir(w.path("d"), 0o755))
			entries, err := os.ReadDir(w.path("d"))
			if err != nil || len(entries) != 0 {
				w.Errorf("a directory made anew has %d entries, %v", len(entries), err)
			}
			after := w.stat(".")
			if after.Nlink != 1 && after.Nlink != before.Nlink+1 {
				w.Errorf("nlink %d, was %d", after.Nlink, before.Nlink)
			}
			w.want("unlink of a directory", unix.Unlink(w.path("d")), syscall.EISDIR)
			w.want("rmdir of a file", func() error { w.write("f", ""); return syscall.Rmdir(w.path("f")) }(), syscall.ENOTDIR)
			fd := w.open("d", os.O_RDONLY)
			w.must(os.Remove(w.path("d")))
			_, err = unix.Openat(int(fd.Fd()), "x", unix.O_CREAT|unix.O_WRONLY, 0o644)
			w.want("create in a removed directory", err, syscall.ENOENT)
		},
	},
	"FailedMkdir": {
		seed: func(w *world) { w.must(os.Mkdir(w.path("d"), 0o755)) },
		check: func(w *world) {
			before := w.stat(".")
			w.want("mkdir", os.Mkdir(w.path("d"), 0o755), syscall.EEXIST)
			w.want("mkdir", os.Mkdir(w.path("none/d"), 0o755), syscall.ENOENT)
			if after := w.stat("."); after.Ctim != before.Ctim || after.Mtim != before.Mtim {
				w.Error("a failed mkdir changes the times of the parent")
			}
		},
	},
	"DirectoryTimes": {
		seed: func(w *world) { w.write("f", "") },
		check: func(w *world) {
			for what, do := range map[string]func() error{
				"create": func() error { return os.WriteFile(w.path("new"), nil, 0o644) },
				"link":   func() error { return os.Link(w.path("f"), w.path("l")) },
				"rename": func() error { return os.Rename(w.path("f"), w.path("g")) },
				"mkdir":  func() error { return os.Mkdir(w.path("d"), 0o755) },
			} {
				old := time.Unix(1_000_000_000, 0)
				w.must(os.Chtimes(w.path("."), old, old))
				w.must(do())
				if after := w.stat("."); after.Mtim.Sec == old.Unix() {
					w.Errorf("%s leaves the directory's mtime", what)
				}
				if what == "rename" {
					w.must(os.Rename(w.path("g"), w.path("f")))
				}
			}
		},
	},
}

// dirent decodes the first struct linux_dirent64.
func dirent(b []byte) (off int64, name string, size int) {
	d := (*[8]byte)(b[8:16])
	for i := 7; i >= 0; i-- {
		off = off<<8 | int64(d[i])
	}
	size = int(b[16]) | int(b[17])<<8
	name = string(b[19:size])
	for i := range name {
		if name[i] == 0 {
			return off, name[:i], size
		}
	}
	return off, name, size
}
