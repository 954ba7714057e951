package holder

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors of a holder that is started.
const (
	listenerFD = 3 // bound to the socket of the home
	daemonFD   = 4 // connected to the daemon that starts it
	beforeFD   = 5 // pidfd of the holder that it is to follow, with the argument followArg
)

const followArg = "follow"

// managedArg says that a service manager starts and ends the holder, and starts daemons.
const managedArg = "managed"

const (
	maxConns = 64
	// spareFiles is how many descriptors the process leaves for other things than what it keeps.
	spareFiles = maxConns + 64
	// yieldWait is how long the holder before may take to end.
	yieldWait = 5 * time.Second
)

// IsHolder reports whether the program was started to call Main, and do nothing else.
func IsHolder() bool { return len(os.Args) > 1 && os.Args[0] == Name }

// exitConflict is the exit code of the command for conflicts, as in sandbox/api.
const exitConflict = 4

// Main is the process of a holder. It returns the exit code.
func Main() int {
	switch {
	case slices.Contains(os.Args[2:], endedArg):
		tellEnd(os.Args[1])
		return 0
	case slices.Contains(os.Args[2:], pauseArg):
		pause(os.Args[1])
		return 0
	}
	debug.SetGCPercent(20)
	p, err := newProcess(os.Args[1], slices.Contains(os.Args[2:], followArg), slices.Contains(os.Args[2:], managedArg))
	if err != nil {
		fmt.Fprintln(os.Stderr, "snapfs-holder:", err)
		if errors.Is(err, ErrConflict) {
			return exitConflict
		}
		return 1
	}
	if p.managed {
		tellServing()
	}
	p.run()
	return 0
}

// entry is what is kept by a name.
type entry struct {
	data []byte
	fds  []int
}

// process is a holder. One goroutine has it.
type process struct {
	home     int // directory
	id       identity
	listener int
	socket   identity // of the path of the listener
	wake     int      // readable when a signal has come
	buf, oob []byte
	maxFiles int
	span     span

	conns []*conn
	maker *conn // of the daemon that has started this holder, until it has the role: nobody else is heard before
	kept  map[string]entry
	names []string // of kept, in order
	files int      // kept descriptors

	follows int  // pidfd of the holder that has the role until this one is told to commit; -1 if this one has
	managed bool // a service manager starts and ends this process, and starts daemons

	role
	end bool
}

func newProcess(dir string, follow, managed bool) (*process, error) {
	home, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	p := &process{
		home: home, listener: listenerFD, buf: make([]byte, maxMessage), oob: make([]byte, oobSize), kept: map[string]entry{},
		follows: -1, managed: managed, span: versions,
	}
	p.most = maxFailures
	if p.id, err = identityOf(home); err != nil {
		return nil, err
	}
	if managed {
		err = p.listenAlone(dir)
	} else {
		err = p.inherit(follow)
	}
	if err != nil {
		return nil, err
	}
	p.socket = p.atPath()
	p.maxFiles = raiseFiles() - spareFiles
	if p.wake, err = onSignals(); err != nil {
		return nil, err
	}
	return p, os.Chdir("/")
}

// inherit takes the descriptors that the daemon has given to the holder that it starts.
func (p *process) inherit(follow bool) error {
	for _, fd := range []int{listenerFD, daemonFD} {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	if follow {
		unix.CloseOnExec(beforeFD)
		p.follows = beforeFD
	}
	closeInherited(follow)
	// Listening again has the kernel tell clients the credentials of this process.
	if err := unix.Listen(listenerFD, unix.SOMAXCONN); err != nil {
		return os.NewSyscallError("listen", err)
	}
	c, err := newConn(daemonFD)
	if err != nil {
		return err
	}
	p.conns, p.maker = append(p.conns, c), c
	return nil
}

// closeInherited closes what the daemon has inherited from whoever started it: a pipe whose reader waits for its end.
// What this program opens itself is closed by exec.
func closeInherited(follow bool) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	most := daemonFD
	if follow {
		most = beforeFD
	}
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= most {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// raiseFiles raises the limit of open files as far as possible, and gives it.
func raiseFiles() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	most := r.Max
	if text, err := os.ReadFile("/proc/sys/fs/nr_open"); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			most = max(most, n)
		}
	}
	for _, limit := range []uint64{most, r.Max} { // the first needs privilege
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err == nil {
			return int(limit)
		}
	}
	return int(r.Cur)
}

// onSignals has the process ignore the signals that end others, and gives a descriptor that becomes readable when SIGTERM
// has come. They are caught, so that a daemon that is started has them as they are by default.
func onSignals() (int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, os.NewSyscallError("pipe2", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	go func() { // for the life of the process
		for s := range signals {
			if s == unix.SIGTERM {
				_, _ = unix.Write(fds[1], []byte{1}) // one that is full is readable
			}
		}
	}()
	return fds[0], nil
}

// run serves until the holder is to end.
func (p *process) run() {
	for !p.end {
		fds := []unix.PollFd{{Fd: int32(p.listener), Events: unix.POLLIN}, {Fd: int32(p.wake), Events: unix.POLLIN}}
		if p.maker != nil {
			fds[0].Fd = -1
		}
		watched := slices.Clone(p.conns)
		for _, c := range watched {
			fds = append(fds, unix.PollFd{Fd: int32(c.fd), Events: unix.POLLIN})
		}
		for _, fd := range p.watched() {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
		if _, err := unix.Poll(fds, p.timeout()); err != nil && !errors.Is(err, unix.EINTR) {
			time.Sleep(10 * time.Millisecond) // out of memory
			continue
		}
		// Requests come first: a daemon's last word is read before its death is noticed.
		for i, c := range watched {
			if fds[2+i].Revents != 0 && slices.Contains(p.conns, c) {
				p.read(c)
			}
		}
		if fds[1].Revents != 0 {
			p.terminate()
		}
		p.look()
		if fds[0].Revents != 0 {
			p.accept()
		}
	}
}

// atPath is what is at the path of the socket, zero if nothing is.
func (p *process) atPath() identity {
	var st unix.Stat_t
	if err := unix.Fstatat(p.home, SocketName, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return identity{}
	}
	return identity{uint64(st.Dev), st.Ino}
}

// reachable makes the socket anew if its path leads to another one, or to nothing.
func (p *process) reachable() {
	if p.atPath() == p.socket {
		return
	}
	fd, err := listen(p.home)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return // a full disk; a daemon that does not find the holder fails, and is tried again
	}
	_ = unix.Close(p.listener)
	p.listener, p.socket = fd, p.atPath()
}

// terminate is what SIGTERM does: a daemon that is there ends first, unless a service manager sees to the order. The
// daemon gives the next holder everything.
func (p *process) terminate() {
	_, _ = unix.Read(p.wake, make([]byte, 16))
	p.terminated = true
	p.end = p.end || p.owner == nil || p.managed
}

// keep replaces what is kept by a name.
func (p *process) keep(name string, e entry) error {
	old, there := p.kept[name]
	if p.files-len(old.fds)+len(e.fds) > p.maxFiles {
		return fmt.Errorf("%w: %d are kept", ErrFull, p.files)
	}
	p.kept[name] = e
	p.files += len(e.fds) - len(old.fds)
	if !there {
		i, _ := slices.BinarySearch(p.names, name)
		p.names = slices.Insert(p.names, i, name)
	}
	closeAll(old.fds)
	return nil
}

func (p *process) forget(name string) {
	e, there := p.kept[name]
	if !there {
		return
	}
	delete(p.kept, name)
	i, _ := slices.BinarySearch(p.names, name)
	p.names = slices.Delete(p.names, i, i+1)
	p.files -= len(e.fds)
	closeAll(e.fds)
}

// next is the first name after another one; "" if there is none.
func (p *process) next(name string) string {
	i, found := slices.BinarySearch(p.names, name)
	if found {
		i++
	}
	if i == len(p.names) {
		return ""
	}
	return p.names[i]
}

// alive counts what is kept for other things than the home itself.
func (p *process) alive() int {
	n := 0
	for _, name := range p.names {
		if !strings.HasPrefix(name, HomePrefix) {
			n++
		}
	}
	return n
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // nothing was written
	}
}
