package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
	"snapfs/internal/testseed"
)

// payloads gives memory that direct I/O takes.
func payloads(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) }) // ours
	return b
}

// TestLargeTransfers writes and reads as much as one request can hold, past the page cache, from several programs'
// worth of threads, and checks that the server gives the memory back when it is idle.
func TestLargeTransfers(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	if want := os.Getenv(testmount.TransportEnv); want != "" && fs.Transport() != want {
		t.Fatalf("transport %s, want %s", fs.Transport(), want)
	}
	const size, count, files = 1 << 20, 8, 4
	seed := testseed.Of(t)
	var wg sync.WaitGroup
	for i := range files {
		out, in := payloads(t, size*count), payloads(t, size*count)
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		words := unsafe.Slice((*uint64)(unsafe.Pointer(&out[0])), len(out)/8)
		for j := range words {
			words[j] = r.Uint64()
		}
		wg.Go(func() {
			f, err := os.OpenFile(filepath.Join(fs.Dir, strconv.Itoa(i)), os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o644)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close() //nolint:errcheck // read back below
			for j := range count {
				if _, err := f.WriteAt(out[j*size:(j+1)*size], int64(j*size)); err != nil {
					t.Error(err)
				}
			}
			for j := range count {
				if _, err := f.ReadAt(in[j*size:(j+1)*size], int64(j*size)); err != nil {
					t.Error(err)
				}
			}
			if !bytes.Equal(in, out) {
				t.Errorf("file %d comes back other than it was written", i)
			}
		})
	}
	wg.Wait()
	if n := fs.Requests()["WRITE"]; n > files*count {
		t.Errorf("%d WRITE requests, want at most %d", n, files*count)
	}
	if fs.Transport() != "uring" || raceEnabled { // the race detector has mappings of the same kind
		return
	}
	// Entries of one megabyte each were used; some seconds later they hold nothing.
	for since := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if left := payloadMemory(t, fs.PID()); left < 1<<20 {
			break
		} else if time.Since(since) > 2*time.Minute {
			t.Errorf("%d bytes of payloads stay", left)
			break
		}
	}
	// They are still good for requests.
	if err := os.WriteFile(filepath.Join(fs.Dir, "after"), bytes.Repeat([]byte("x"), size), 0o644); err != nil {
		t.Error(err)
	}
}

// payloadMemory is how much memory there is behind the process's mappings that want no large pages.
func payloadMemory(t *testing.T, pid int) (bytes int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	rss := 0
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		switch f[0] {
		case "Rss:":
			if rss, err = strconv.Atoi(f[1]); err != nil {
				t.Fatal(err)
			}
		case "VmFlags:":
			if strings.Contains(line, " nh") {
				bytes += rss << 10
			}
		}
	}
	return bytes
}

// TestForgetStorm makes and removes files from several threads: each is forgotten over the device, whatever the
// transport.
func TestForgetStorm(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	const threads, files = 4, 1000
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			for j := range files {
				name := filepath.Join(fs.Dir, fmt.Sprintf("%d-%d", i, j))
				fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY, 0o644)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(unix.Close(fd), os.Remove(name)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for since := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		n := fs.Requests()
		if n["FORGET"] >= threads*files/2 || n["BATCH_FORGET"] > 0 {
			break
		}
		if time.Since(since) > time.Minute {
			t.Fatalf("%d files were made and removed, requests: %v", threads*files, n)
		}
	}
	if n := fs.Memory().Goroutines; n > 200 {
		t.Errorf("%d goroutines", n)
	}
}

// TestKilledUnderLoad kills servers while programs use their mounts: none hangs, and the mounts can be cleared away.
func TestKilledUnderLoad(t *testing.T) {
	rounds := 5
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 60
	}
	for range rounds {
		fs := testmount.Start(t, testmount.Config{})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				name := filepath.Join(fs.Dir, strconv.Itoa(i))
				for j := 0; ; j++ {
					if err := os.WriteFile(name, []byte(strconv.Itoa(j)), 0o644); err != nil {
						return
					}
					if _, err := os.ReadFile(name); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		fs.Kill()
		wg.Wait()
		fs.Stop()
	}
}
