package transport

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// stuckAfter is how often the watchdog looks; a leader that handles the same request at two looks is replaced.
const stuckAfter = time.Millisecond

// hub waits for all idle devices of the process at once and watches the leaders of the busy ones. There is one per
// process and, like the runtime's own poller, it never ends.
type hub struct {
	epoll *os.File // an epoll set; readable when a device in it is; nil if the host gave none

	mu       lockorder.Mutex[lockorder.Hub] // guards the rest
	members  map[int32]*device              // by descriptor
	busy     map[watched]struct{}           // devices with a leader, lanes with requests
	watching bool                           // the watchdog runs
}

// watched is what the watchdog looks after.
type watched interface {
	// check reports whether requests are stuck, that is, no further than at the last look; then rescue is called. rest:
	// there is nothing to watch any more. It is called with hub.mu held, by the watchdog alone.
	check() (stuck, rest bool)
	// rescue has another thread take the requests that come.
	rescue()
}

// theHub gives the process's only hub.
var theHub = sync.OnceValue(func() *hub {
	h := &hub{members: make(map[int32]*device), busy: make(map[watched]struct{})}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return h
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.NewFile give it to the runtime's poller
		_ = unix.Close(fd) // never used
		return h
	}
	h.epoll = os.NewFile(uintptr(fd), "epoll")
	go h.loop()
	return h
})

// loop gives a leader to each idle device that has a request.
func (h *hub) loop() {
	raw, err := h.epoll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 64)
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if err == unix.EINTR { //nolint:errorlint // raw errno
				continue
			}
			if n <= 0 {
				return false
			}
			for _, e := range events[:n] {
				h.mu.Lock()
				d := h.members[e.Fd]
				h.mu.Unlock()
				if d != nil {
					d.lead()
				}
			}
		}
	})
}

// add puts a device into the set, waiting for a request.
func (h *hub) add(d *device) error {
	if h.epoll == nil {
		return unix.EMFILE
	}
	h.mu.Lock()
	h.members[int32(d.fd)] = d
	h.mu.Unlock()
	return h.ctl(unix.EPOLL_CTL_ADD, d, unix.EPOLLIN)
}

// park has a device without a leader wait in the set, for events and in any case for the end of its connection. One
// shot: a device with a leader must not wake the hub.
func (h *hub) park(d *device, events uint32) {
	h.mu.Lock()
	delete(h.busy, d)
	h.mu.Unlock()
	if h.ctl(unix.EPOLL_CTL_MOD, d, events) != nil && events != 0 {
		d.lead()
	}
}

func (h *hub) ctl(op int, d *device, events uint32) error {
	if h.epoll == nil {
		return unix.EMFILE
	}
	raw, err := h.epoll.SyscallConn()
	if err != nil {
		return err
	}
	var cerr error
	err = raw.Control(func(fd uintptr) {
		cerr = unix.EpollCtl(int(fd), op, d.fd, &unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(d.fd)})
	})
	if err != nil {
		return err
	}
	return cerr
}

// remove takes a device out before its descriptor is closed.
func (h *hub) remove(d *device) {
	h.mu.Lock()
	delete(h.busy, d)
	delete(h.members, int32(d.fd))
	h.mu.Unlock()
	_ = h.ctl(unix.EPOLL_CTL_DEL, d, 0) // it may never have been in
}

// watch has the watchdog look after a device that got a leader, or a lane that got a request.
func (h *hub) watch(w watched) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[w] = struct{}{}
	if !h.watching {
		h.watching = true
		go h.watchdog()
	}
}

// watchdog looks for stuck requests (in a copy-up, a seal's gate, a cold disk) and has other threads take the next
// ones. It ends when there is nothing to watch.
func (h *hub) watchdog() {
	tick := time.NewTicker(stuckAfter)
	defer tick.Stop()
	var stuck []watched
	for range tick.C {
		clear(stuck)
		stuck = stuck[:0]
		h.mu.Lock()
		for w := range h.busy {
			isStuck, rest := w.check()
			if rest {
				delete(h.busy, w)
			}
			if isStuck {
				stuck = append(stuck, w)
			}
		}
		if len(h.busy) == 0 {
			h.watching = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		for _, w := range stuck {
			w.rescue()
		}
	}
}
