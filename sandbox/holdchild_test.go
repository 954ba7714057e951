package sandbox

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testchild"
)

// holdDir is the directory whose files the child of this name holds open.
const holdDir = "SNAPFS_TEST_HOLD"

// holding is a program that has all files of a directory open and mapped.
type holding struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

// hold starts one, which ends with the test.
func hold(t *testing.T, dir string) *holding {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = testchild.Env(testchild.User, holdDir+"="+dir)
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = "/", os.Stderr, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x := &holding{t: t, in: in, out: bufio.NewScanner(out)}
	x.look()
	t.Cleanup(x.end)
	return x
}

// end has the program end, which closes its files.
func (x *holding) end() {
	if x.in == nil {
		return
	}
	_ = x.in.Close()
	for x.out.Scan() { // until it has ended
	}
	x.in = nil
}

// seen is what the program sees of a file.
type seen struct{ ino, read, mapped string }

// look has the program read its files anew, by descriptor and in memory.
func (x *holding) look() map[string]seen {
	x.t.Helper()
	if _, err := io.WriteString(x.in, "look\n"); err != nil {
		x.t.Fatal(err)
	}
	files := map[string]seen{}
	for x.out.Scan() && x.out.Text() != "" {
		f := strings.Fields(x.out.Text())
		if len(f) != 4 {
			x.t.Fatalf("the program says %q", x.out.Text())
		}
		files[f[0]] = seen{f[1], f[2], f[3]}
	}
	return files
}

// sumOf is how seen tells contents.
func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:8])
}

// HoldChild is the program, if this process is to be it.
func HoldChild() {
	dir := os.Getenv(holdDir)
	if dir == "" {
		return
	}
	if err := holdFiles(dir); err != nil {
		fmt.Fprintln(os.Stderr, "holding files:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func holdFiles(dir string) error {
	type held struct {
		name string
		f    *os.File
		m    []byte
	}
	var all []held
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		st, err := f.Stat()
		if err != nil {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		all = append(all, held{filepath.Base(path), f, m})
		return nil
	})
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		for _, h := range all {
			// What the kernel has in memory goes: the file system is asked.
			if err := unix.Madvise(h.m, unix.MADV_DONTNEED); err != nil {
				return err
			}
			if err := unix.Fadvise(int(h.f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				return err
			}
			b, err := io.ReadAll(io.NewSectionReader(h.f, 0, 1<<30))
			if err != nil {
				return fmt.Errorf("%s: %w", h.name, err)
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(h.f.Fd()), &st); err != nil {
				return err
			}
			if err := unix.Madvise(h.m, unix.MADV_DONTNEED); err != nil {
				return err
			}
			if err := unix.Fadvise(int(h.f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				return err
			}
			fmt.Println(h.name, st.Ino, sumOf(b), sumOf(h.m))
		}
		fmt.Println()
	}
	return nil
}
