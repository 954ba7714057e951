package fs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// maxBusy bounds the requests of one mount and kind that are handled at a time.
	maxBusy = 64
	// inlineMost is with how many of its kind stuck or given away a request is still handled where it was met.
	inlineMost = 2
	// threadsMost bounds the requests of one kind that are handled at a time beside those who meet them, of all mounts; each may hold a
	// thread. Where the host allows the process few threads, it is the threadShare-th part of what it allows, and threadsLeast at least.
	threadsMost  = 1536
	threadsLeast = 24
	threadShare  = 12
	// lentShare is which part of these is lent; the others are kept for mounts that have none. A mount may borrow the borrowShare-th part
	// of what is left at the time.
	lentShare   = 3
	borrowShare = 8
	// keptMost bounds the memory of requests that wait, in bytes, of all mounts: keptShare-th of the machine's. A mount may have a
	// quarter (keptBorrow) of what is left, and keptLeast in any case.
	keptMost   = 4 << 30
	keptShare  = 16
	keptBorrow = 4
	keptLeast  = 2 << 20
)

// pool is a number of threads that all mounts of the process share, for one kind of requests.
type pool struct {
	size    int
	pressed atomic.Bool // half of it is in use: nobody handles what may wait where it was met

	mu      sync.Mutex
	used    int
	lent    int     // of these, what mounts have beyond one
	starved []*line // have none, and got none
}

func newPool(size int) *pool { return &pool{size: size} }

// pools are the process's, by kind.
var pools = sync.OnceValue(func() (p [lines]*pool) {
	size := max(min(threadsMost, threadLimit()/threadShare), threadsLeast)
	for i := range p {
		p[i] = newPool(size)
	}
	return p
})

// take gives a line another thread, if that is fair. Under n.mu; mine is how many it has.
func (p *pool) take(n *line, mine int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used >= p.size && mine == 0 && !n.starving {
		n.starving = true
		p.starved = append(p.starved, n)
	}
	lend := (p.size/lentShare - p.lent + borrowShare - 1) / borrowShare
	if p.used >= p.size || mine > 0 && (mine >= maxBusy || mine > lend) {
		return false
	}
	p.count(1, mine)
	return true
}

// force takes one for somebody who has a thread already.
func (p *pool) force(mine int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(1, mine)
}

// count adds n threads to a mount that has others beside. Under mu.
func (p *pool) count(n, others int) {
	p.used += n
	if others > 0 {
		p.lent += n
	}
	if pressed := p.used >= p.size/2; pressed != p.pressed.Load() {
		p.pressed.Store(pressed)
	}
}

// give takes one back of a mount that has mine left, and gives the lines that got none before. Who calls has them go on, without a lock.
func (p *pool) give(mine int) (next []*line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(-1, mine)
	next, p.starved = p.starved, nil
	for _, n := range next {
		n.starving = false
	}
	return next
}

// threadLimit is how many threads this process may have, as far as it is known: of the machine, of its control groups and, without
// privilege, of its user.
func threadLimit() int {
	least := 1 << 20
	note := func(n int) {
		if n > 0 {
			least = min(least, n)
		}
	}
	note(readNumber("/proc/sys/kernel/threads-max"))
	note(readNumber("/proc/sys/kernel/pid_max"))
	var r unix.Rlimit
	if os.Geteuid() != 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &r) == nil && r.Cur < uint64(least) {
		note(int(r.Cur))
	}
	for _, dir := range controlGroups("pids") {
		note(readNumber(dir + "/pids.max"))
	}
	return least
}

// keptLimit is for how much memory of requests that wait there is room, in bytes.
var keptLimit = sync.OnceValue(func() int64 { return max(min(keptMost, memoryLimit()/keptShare), keptLeast) })

// memoryLimit is how much memory this process may have, in bytes, as far as it is known: of the machine and of its control groups.
var memoryLimit = sync.OnceValue(func() int64 {
	most := int64(1 << 50)
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		most = int64(uint64(si.Totalram) * uint64(si.Unit))
	}
	for _, dir := range controlGroups("memory") {
		for _, name := range []string{"/memory.max", "/memory.limit_in_bytes"} {
			if n := readNumber(dir + name); n > 0 {
				most = min(most, int64(n))
			}
		}
	}
	return most
})

// controlGroups are the directories of this process's control group and those above it, in the hierarchy that has the controller.
func controlGroups(controller string) (dirs []string) {
	list, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(list)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(f) < 3 {
			continue
		}
		root := "/sys/fs/cgroup"
		if f[1] != "" {
			if !strings.Contains(","+f[1]+",", ","+controller+",") {
				continue
			}
			root = filepath.Join(root, controller)
		}
		for path := filepath.Clean("/" + f[2]); ; path = filepath.Dir(path) {
			dirs = append(dirs, filepath.Join(root, path))
			if path == "/" {
				break
			}
		}
	}
	return dirs
}

// readNumber reads a file with one number; 0 if there is none: "max".
func readNumber(name string) int {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
