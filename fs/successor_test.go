package fs_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testchild"
	"snapfs/internal/testmount"
	"snapfs/internal/testseed"
)

// work is what programs do in a mount, again and again; each has a directory of its own and says what went wrong.
type work struct {
	name string
	// begin prepares, and gives one round and what is checked and given back at the end.
	begin func(dir string, r *rand.Rand) (round, end func() error, err error)
}

const workSize = 256 << 10

// shadowed writes and reads at random, and compares with a copy in memory.
func shadowed(flags int, sync bool) func(string, *rand.Rand) (round, end func() error, err error) {
	return func(dir string, r *rand.Rand) (round, end func() error, err error) {
		f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_CREATE|os.O_RDWR|flags, 0o644)
		if err != nil {
			return nil, nil, err
		}
		const block = 4096
		want := make([]byte, workSize)
		mem, err := unix.Mmap(-1, 0, 8*block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, nil, err
		}
		if _, err := f.WriteAt(mem[:block], workSize-block); err != nil {
			return nil, nil, err
		}
		check := func(off, n int) error {
			got := mem[:n]
			if _, err := f.ReadAt(got, int64(off)); err != nil {
				return err
			}
			if !bytes.Equal(got, want[off:off+n]) {
				return fmt.Errorf("%d bytes at %d are not what was written", n, off)
			}
			return nil
		}
		round = func() error {
			n := (1 + r.IntN(8)) * block
			off := r.IntN((workSize-n)/block+1) * block
			for i := range n / 8 {
				v := r.Uint64()
				for j := range 8 {
					mem[8*i+j] = byte(v >> (8 * j))
				}
			}
			copy(want[off:], mem[:n])
			if _, err := f.WriteAt(mem[:n], int64(off)); err != nil {
				return err
			}
			if sync && r.IntN(8) == 0 {
				if err := f.Sync(); err != nil {
					return err
				}
			}
			n = (1 + r.IntN(8)) * block
			return check(r.IntN((workSize-n)/block+1)*block, n)
		}
		end = func() error {
			defer unix.Munmap(mem) //nolint:errcheck // ours
			if err := f.Sync(); err != nil {
				return err
			}
			for off := 0; off < workSize; off += 8 * block {
				if err := check(off, 8*block); err != nil {
					return err
				}
			}
			return f.Close()
		}
		return round, end, nil
	}
}

// stored stores through a mapping and reads by read(2).
func stored(dir string, r *rand.Rand) (round, end func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err := f.Truncate(workSize); err != nil {
		return nil, nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, workSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	want := make([]byte, workSize)
	round = func() error {
		at, v := r.IntN(workSize), byte(r.Uint32())
		mem[at], want[at] = v, v
		if r.IntN(16) == 0 {
			if err := unix.Msync(mem, unix.MS_SYNC); err != nil {
				return err
			}
			// Its pages are read again.
			if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				return err
			}
		}
		one := make([]byte, 1)
		if _, err := f.ReadAt(one, int64(at)); err != nil || one[0] != v {
			return fmt.Errorf("got %v, %w at %d, want %d", one, err, at, v)
		}
		return nil
	}
	end = func() error {
		err := unix.Munmap(mem)
		got, rerr := os.ReadFile(f.Name())
		if err = errors.Join(err, rerr); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("not what was stored (%w)", err)
		}
		return f.Close()
	}
	return round, end, nil
}

// named makes, lists, links, renames and removes, and knows what each call must say.
func named(dir string, r *rand.Rand) (round, end func() error, err error) {
	have := map[string]bool{}
	path := func(name string) string { return filepath.Join(dir, name) }
	try := func(what string, err error, ok bool) error {
		if (err == nil) != ok {
			return fmt.Errorf("%s: got %w, want success %v", what, err, ok)
		}
		return nil
	}
	round = func() error {
		a, b := strconv.Itoa(r.IntN(64)), strconv.Itoa(r.IntN(64))
		switch r.IntN(8) {
		case 0, 1, 2:
			f, err := os.OpenFile(path(a), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if err := try("create "+a, err, !have[a]); err != nil {
				return err
			}
			have[a] = true
			if err == nil {
				return f.Close()
			}
		case 3:
			err := try("remove "+a, os.Remove(path(a)), have[a])
			delete(have, a)
			return err
		case 4:
			if a == b {
				return nil
			}
			if err := try("rename "+a+" "+b, os.Rename(path(a), path(b)), have[a]); err != nil {
				return err
			}
			if have[a] {
				// Two names of one file stay as they are.
				if _, err := os.Lstat(path(a)); err != nil {
					delete(have, a)
				}
				have[b] = true
			}
		case 5:
			err := try("link "+a+" "+b, os.Link(path(a), path(b)), have[a] && !have[b])
			have[b] = have[b] || have[a]
			if !have[b] {
				delete(have, b)
			}
			return err
		case 6:
			err := try("mkdir "+a, os.Mkdir(path(a)+".d", 0o755), !have[a+".d"])
			have[a+".d"] = true
			return err
		case 7:
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			names := make([]string, 0, len(entries))
			for _, e := range entries {
				names = append(names, e.Name())
			}
			want := make([]string, 0, len(have))
			for name := range have {
				want = append(want, name)
			}
			slices.Sort(want)
			if !slices.Equal(names, want) {
				return fmt.Errorf("listed %q, want %q", names, want)
			}
		}
		return nil
	}
	return round, func() error { return nil }, nil
}

// unlinked uses files that have no name any more.
func unlinked(dir string, r *rand.Rand) (round, end func() error, err error) {
	var f *os.File
	var want []byte
	round = func() error {
		if f == nil || r.IntN(16) == 0 {
			if f != nil {
				if err := f.Close(); err != nil {
					return err
				}
			}
			if f, err = os.OpenFile(filepath.Join(dir, "f"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644); err != nil {
				return err
			}
			want = nil
			if err := os.Remove(f.Name()); err != nil {
				return err
			}
		}
		if _, err := f.WriteAt([]byte{byte(len(want))}, int64(len(want))); err != nil {
			return err
		}
		want = append(want, byte(len(want)))
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("an unlinked file has %d bytes other than written (%w)", len(want), err)
		}
		return nil
	}
	return round, func() error { return f.Close() }, nil
}

// appended writes at the end.
func appended(dir string, r *rand.Rand) (round, end func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, err
	}
	var want []byte
	round = func() error {
		line := bytes.Repeat([]byte{byte(r.Uint32())}, 1+r.IntN(100))
		want = append(want, line...)
		_, err := f.Write(line)
		return err
	}
	end = func() error {
		got, err := os.ReadFile(f.Name())
		if err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%d bytes were appended, %d are there (%w)", len(want), len(got), err)
		}
		return f.Close()
	}
	return round, end, nil
}

var works = [...]work{
	{"buffered", shadowed(0, true)},
	{"direct", shadowed(unix.O_DIRECT, false)},
	{"mapped", stored},
	{"named", named},
	{"unlinked", unlinked},
	{"appended", appended},
}

// loadEnv tells the test binary to work in a directory instead of testing. It must be another process: one that waits
// for a page of a mapped file can start no server.
const loadEnv = "SNAPFS_TEST_LOAD"

// loadChild does all kinds of work until standard input ends. For each line in it, each kind has gone on when the answer
// comes: the longest round so far, in nanoseconds.
func loadChild() {
	dir := os.Getenv(loadEnv)
	if dir == "" {
		return
	}
	seed, err := strconv.ParseUint(os.Getenv(loadEnv+"_SEED"), 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var rounds [len(works)]atomic.Int64
	var worst atomic.Int64
	var failed atomic.Bool
	fail := func(name, when string, err error) {
		failed.Store(true)
		fmt.Fprintf(os.Stderr, "%s: %s: %v\n", name, when, err)
	}
	stop := make(chan struct{})
	var done sync.WaitGroup
	for i, w := range works {
		sub := filepath.Join(dir, w.name)
		if err := os.MkdirAll(sub, 0o755); err != nil {
			fail(w.name, "mkdir", err)
			os.Exit(1)
		}
		round, end, err := w.begin(sub, rand.New(rand.NewPCG(seed, uint64(i))))
		if err != nil {
			fail(w.name, "at the beginning", err)
			os.Exit(1)
		}
		done.Go(func() {
			for {
				select {
				case <-stop:
					if err := end(); err != nil {
						fail(w.name, "at the end", err)
					}
					return
				default:
				}
				start := time.Now()
				if err := round(); err != nil {
					fail(w.name, "in round "+strconv.FormatInt(rounds[i].Load(), 10), err)
					return
				}
				rounds[i].Add(1)
				for took := int64(time.Since(start)); ; {
					if was := worst.Load(); took <= was || worst.CompareAndSwap(was, took) {
						break
					}
				}
			}
		})
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var was [len(works)]int64
		for i := range rounds {
			was[i] = rounds[i].Load()
		}
		for i := range rounds {
			for rounds[i].Load() == was[i] && !failed.Load() {
				time.Sleep(time.Millisecond)
			}
		}
		if failed.Load() {
			break
		}
		fmt.Println(worst.Load())
	}
	close(stop)
	done.Wait()
	if failed.Load() {
		os.Exit(1)
	}
	os.Exit(0)
}

// load is programs at work.
type load struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startLoad(t *testing.T, dir string) *load {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = testchild.Env(testchild.User, loadEnv+"="+dir, fmt.Sprintf("%s_SEED=%d", loadEnv, testseed.Of(t)))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
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
	return &load{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
}

// await waits until each kind of work has gone on, and gives the longest round so far.
func (l *load) await() time.Duration {
	l.t.Helper()
	if _, err := l.in.Write([]byte("\n")); err != nil {
		l.t.Fatal(err)
	}
	line, err := l.out.ReadString('\n')
	if err != nil {
		l.t.Fatalf("the programs have ended: %v", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		l.t.Fatal(err)
	}
	return time.Duration(n)
}

// end has the programs check what they have written.
func (l *load) end() {
	_ = l.in.Close() // what matters is how they end
	if err := l.cmd.Wait(); err != nil {
		l.t.Errorf("programs: %v", err)
	}
}

// TestSuccessors has servers take over from each other under load, by killing them and by giving mounts up: no program
// sees it.
func TestSuccessors(t *testing.T) {
	for _, writeback := range []bool{false, true} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("writeback=%v,kill=%v", writeback, kill), func(t *testing.T) {
				m := testmount.Start(t, testmount.Config{Live: true, Writeback: writeback})
				l := startLoad(t, m.Dir)
				defer l.end()
				defer m.Abandon()
				before := l.await()
				var gaps []time.Duration
				for range 5 {
					start := time.Now()
					if kill {
						m.Crash()
					} else {
						m.Release()
					}
					m.Adopt()
					gaps = append(gaps, time.Since(start).Round(time.Millisecond))
					l.await()
				}
				t.Logf("longest call: %v, without successors %v; servers changed in %v", l.await(), before, gaps)
			})
		}
	}
}
