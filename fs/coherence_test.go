package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
	"snapfs/internal/testseed"
)

// shared is a file that is written and read in all ways at once.
type shared struct {
	fd, direct int
	mem        []byte // the file, mapped
	ctx        uintptr
	aux        int    // another file, as long as a piece
	block      []byte // aligned, a piece long
}

const (
	pieceSize  = 64 << 10
	sharedSize = 16 * pieceSize
)

// changes give a piece of a file the contents of s.block, or zeros, and return when other programs must see it.
var changes = map[string]func(s *shared, off int64) (zeros bool, err error){
	"aio direct": func(s *shared, off int64) (bool, error) {
		const each = 8 << 10
		for i := int64(0); i < pieceSize; i += each {
			cb := &iocb{
				opcode: aioWriteCmd, fd: uint32(s.direct),
				buf: uint64(uintptr(unsafe.Pointer(&s.block[i]))), bytes: each, offset: off + i,
			}
			if err := aioSubmit(s.ctx, cb); err != nil {
				return false, err
			}
		}
		events := make([]ioEvent, pieceSize/each)
		for left := len(events); left > 0; {
			n, err := aioWait(s.ctx, events[:left])
			if err != nil {
				return false, err
			}
			for _, e := range events[:n] {
				if e.res != each {
					return false, fmt.Errorf("completed with %d", e.res)
				}
			}
			left -= n
		}
		return false, nil
	},
	"direct":   func(s *shared, off int64) (bool, error) { return false, wrote(unix.Pwrite(s.direct, s.block, off)) },
	"buffered": func(s *shared, off int64) (bool, error) { return false, wrote(unix.Pwrite(s.fd, s.block, off)) },
	"mapped":   func(s *shared, off int64) (bool, error) { copy(s.mem[off:], s.block); return false, nil },
	"copy": func(s *shared, off int64) (bool, error) {
		if _, err := unix.Pwrite(s.aux, s.block, 0); err != nil {
			return false, err
		}
		for in, out := int64(0), off; in < pieceSize; {
			if _, err := unix.CopyFileRange(s.aux, &in, s.fd, &out, int(pieceSize-in), 0); err != nil {
				return false, err
			}
		}
		return false, nil
	},
	"punch": func(s *shared, off int64) (bool, error) {
		return true, unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, pieceSize)
	},
	"zero": func(s *shared, off int64) (bool, error) {
		return true, unix.Fallocate(s.fd, unix.FALLOC_FL_ZERO_RANGE, off, pieceSize)
	},
}

// TestCoherence writes a file in all ways while others read it, so that pages come into the kernel's cache while they
// are being written: what has returned is what everybody reads from then on, through the page cache, around it and
// through a mapping.
func TestCoherence(t *testing.T) {
	for _, writeback := range []bool{false, true} {
		t.Run(fmt.Sprintf("writeback=%v", writeback), func(t *testing.T) { testCoherence(t, writeback) })
	}
}

func testCoherence(t *testing.T, writeback bool) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	fs := testmount.Start(t, testmount.Config{Writeback: writeback})
	name := filepath.Join(fs.Dir, "shared")
	if err := errors.Join(
		os.WriteFile(name, make([]byte, sharedSize), 0o644),
		os.WriteFile(name+"2", make([]byte, pieceSize), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	open := func(name string, flags int) int {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) }) // what was written is checked
		return fd
	}
	s := &shared{fd: open(name, 0), direct: open(name, unix.O_DIRECT), aux: open(name+"2", 0)}
	aligned := func(size int) []byte {
		b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) }) // ours
		return b
	}
	s.block = aligned(pieceSize)
	var err error
	if s.mem, err = unix.Mmap(s.fd, 0, sharedSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(s.mem) }) // ours
	ctx, done, err := aioContext(64)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	s.ctx = ctx

	var stop atomic.Bool
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop.Store(true)
	for i := range 3 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			b := make([]byte, pieceSize)
			for rng := rand.New(rand.NewPCG(uint64(i), 0)); !stop.Load(); {
				_, _ = unix.Pread(s.fd, b, rng.Int64N(sharedSize/page)*page) // only brings pages
			}
		}()
	}

	around := aligned(pieceSize)
	buf := make([]byte, pieceSize)
	var names []string
	for name := range changes {
		names = append(names, name)
	}
	for end := time.Now().Add(700 * time.Millisecond); time.Now().Before(end); {
		for _, how := range names {
			off := rng.Int64N(sharedSize/pieceSize) * pieceSize
			for i := range s.block {
				s.block[i] = byte(rng.Uint32())
				if i == page {
					copy(s.block[page:], s.block[:page])
					for k := 2 * page; k < len(s.block); k *= 2 {
						copy(s.block[k:], s.block[:k])
					}
					break
				}
			}
			zeros, err := changes[how](s, off)
			if errors.Is(err, syscall.EOPNOTSUPP) {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			want := s.block
			if zeros {
				want = make([]byte, pieceSize)
			}
			for _, look := range []struct {
				name string
				read func() ([]byte, error)
			}{
				{"the page cache", func() ([]byte, error) { _, err := unix.Pread(s.fd, buf, off); return buf, err }},
				{"a mapping", func() ([]byte, error) { return s.mem[off : off+pieceSize], nil }},
				{"the server", func() ([]byte, error) { _, err := unix.Pread(s.direct, around, off); return around, err }},
				{"the page cache again", func() ([]byte, error) { _, err := unix.Pread(s.fd, buf, off); return buf, err }},
			} {
				got, err := look.read()
				if err != nil {
					t.Fatalf("%s, then %s: %v", how, look.name, err)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("%s at %d: %s has something else", how, off, look.name)
				}
			}
		}
	}
}

// TestCoherentSize cuts a file off and lets it grow again while it is read ahead: what was cut off never comes back.
func TestCoherentSize(t *testing.T) {
	for _, writeback := range []bool{false, true} {
		fs := testmount.Start(t, testmount.Config{Writeback: writeback})
		f, err := os.OpenFile(filepath.Join(fs.Dir, "f"), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		full := bytes.Repeat([]byte{0xaa}, 512<<10)
		var stop atomic.Bool
		var readers sync.WaitGroup
		for range 2 {
			readers.Add(1)
			go func() {
				defer readers.Done()
				b := make([]byte, len(full))
				for !stop.Load() {
					_, _ = f.ReadAt(b, 0) // only brings pages
				}
			}()
		}
		got := make([]byte, len(full))
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			const cut = 100_000
			_, werr := f.WriteAt(full, 0)
			if err := errors.Join(werr, f.Truncate(cut), f.Truncate(int64(len(full)))); err != nil {
				t.Fatal(err)
			}
			if _, err := f.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got[:cut], full[:cut]) || !bytes.Equal(got[cut:], make([]byte, len(full)-cut)) {
				t.Errorf("write-back %v: what was cut off is there again", writeback)
				break
			}
		}
		stop.Store(true)
		readers.Wait()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
