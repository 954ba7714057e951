package fs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// BenchmarkTransports compares the transports, request by request, on mounts of the same overlay that live at the same
// time, in turns, and prints for each operation the median of microseconds and of processor time, of program and server
// together. Every round is some hundred operations on each.
//
//	go test -run - -bench Transports -benchtime 15x ./fs
func BenchmarkTransports(b *testing.B) {
	if os.Getenv(testmount.TransportEnv) == "dev" {
		b.Skip("both are measured in the run over io_uring")
	}
	type side struct {
		fs    *testmount.FS
		times map[string][]float64
		cpu   map[string][]float64
	}
	sides := map[string]*side{}
	names := []string{"dev", "uring"}
	if more := os.Getenv("SNAPFS_BENCH_TRANSPORTS"); more != "" {
		names = strings.Split(more, ",")
	}
	for _, name := range names {
		sides[name] = &side{
			fs:    testmount.Start(b, testmount.Config{Transport: name}),
			times: map[string][]float64{}, cpu: map[string][]float64{},
		}
	}
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(mem) //nolint:errcheck // ours
	var round int
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	file := func(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("%d-%d", round, i)) }
	onBig := func(f func(fd int, i int) error, n int) func(dir string) int {
		return func(dir string) int {
			fd, err := unix.Open(filepath.Join(dir, "big"), unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, 0o644)
			must(err)
			for i := range n {
				must(f(fd, i))
			}
			must(unix.Close(fd))
			return n
		}
	}
	const files = 200
	ops := []struct {
		name string
		run  func(dir string) int // gives how many operations it did
	}{
		{"getattr", func(dir string) int {
			fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
			must(err)
			var st unix.Statx_t
			for range 1000 {
				must(unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st))
			}
			must(unix.Close(fd))
			return 1000
		}},
		{"create+close", func(dir string) int {
			for i := range files {
				fd, err := unix.Open(file(dir, i), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
				must(err)
				must(unix.Close(fd))
			}
			return files
		}},
		{"stat uncached", func(dir string) int {
			var st unix.Statx_t
			for i := range files {
				must(unix.Statx(unix.AT_FDCWD, file(dir, i), unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st))
			}
			return files
		}},
		{"unlink", func(dir string) int {
			for i := range files {
				must(unix.Unlink(file(dir, i)))
			}
			return files
		}},
		{"write 1M", onBig(func(fd, i int) error { _, err := unix.Pwrite(fd, mem, int64(i%8)<<20); return err }, 24)},
		{"read 1M", onBig(func(fd, i int) error { _, err := unix.Pread(fd, mem, int64(i%8)<<20); return err }, 24)},
		{"read 4K", onBig(func(fd, i int) error { _, err := unix.Pread(fd, mem[:4096], int64(i)<<12); return err }, 500)},
	}
	for range b.N {
		round++
		for _, op := range ops {
			for _, name := range names {
				s := sides[name]
				before := processorTime(b, s.fs.PID())
				start := time.Now()
				n := float64(op.run(s.fs.Dir))
				s.times[op.name] = append(s.times[op.name], float64(time.Since(start))/n/1e3)
				s.cpu[op.name] = append(s.cpu[op.name], (processorTime(b, s.fs.PID())-before)/n*1e6)
			}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-14s", "us (of cpu)")
	for _, name := range names {
		fmt.Fprintf(&out, " %18s", name)
	}
	for _, op := range ops {
		fmt.Fprintf(&out, "\n%-14s", op.name)
		for _, name := range names {
			fmt.Fprintf(&out, " %8.1f (%7.1f)", median(sides[name].times[op.name]), median(sides[name].cpu[op.name]))
		}
	}
	b.Log("\n" + out.String())
}

// processorTime is what this process and another one have used, in seconds. Files of /proc round to ticks: the
// scheduler's own sum of the other's threads does not.
func processorTime(b *testing.B, pid int) float64 {
	b.Helper()
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	sum := float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
	var ts unix.Timespec
	clock := int32(^pid<<3 | 2) // CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) makes it
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		b.Fatal("processor time of "+strconv.Itoa(pid)+": ", errno)
	}
	return sum + float64(ts.Nano())/1e9
}
