package holder

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection of a client.
type conn struct {
	fd      int
	uid     uint32
	pid     int
	version int      // of the protocol; 0 until the client has said hello
	waits   *request // the "serve" that waits for its turn, nil for none
	exe     int      // of waits
}

func newConn(fd int) (*conn, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, os.NewSyscallError("getsockopt", err)
	}
	return &conn{fd: fd, uid: cred.Uid, pid: int(cred.Pid), exe: -1}, nil
}

// pidfd is the process at the other end, also if another one has its number by now.
func (c *conn) pidfd() (int, error) {
	fd, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil { // before Linux 6.5
		fd, err = unix.PidfdOpen(c.pid, 0)
	}
	if err != nil {
		return -1, fmt.Errorf("%w: process %d cannot be watched: %w", ErrRefused, c.pid, err)
	}
	unix.CloseOnExec(fd)
	return fd, nil
}

// accept takes one connection.
func (p *process) accept() {
	fd, _, err := unix.Accept4(p.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		if !errors.Is(err, unix.EAGAIN) {
			time.Sleep(10 * time.Millisecond) // the system has no descriptors
		}
		return
	}
	c, err := newConn(fd)
	if err != nil || c.uid != 0 && c.uid != uint32(os.Geteuid()) {
		_ = unix.Close(fd) // a stranger learns nothing
		return
	}
	if len(p.conns) >= maxConns { // the one that came first and is not needed
		i := slices.IndexFunc(p.conns, func(c *conn) bool { return (p.owner == nil || p.owner.conn != c) && c.waits == nil })
		if i < 0 {
			_ = unix.Close(fd)
			return
		}
		p.drop(p.conns[i])
	}
	p.conns = append(p.conns, c)
}

// drop ends a connection.
func (p *process) drop(c *conn) {
	p.conns = slices.DeleteFunc(p.conns, func(other *conn) bool { return other == c })
	_ = unix.Close(c.fd)
	if p.maker == c { // whoever needs a holder starts one
		p.maker, p.end = nil, true
	}
	if c.exe >= 0 {
		_ = unix.Close(c.exe)
	}
	if p.owner != nil && p.owner.conn == c {
		p.owner.conn = nil // its process is looked at
	}
}

// read answers one request.
func (p *process) read(c *conn) {
	n, oobn, flags, _, err := unix.Recvmsg(c.fd, p.buf, p.oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return
	}
	if err != nil || n == 0 {
		p.drop(c)
		return
	}
	fds, err := rights(p.oob[:oobn])
	var r request
	switch {
	case flags&unix.MSG_TRUNC != 0:
		closeAll(fds)
		p.drop(c)
		return
	case err == nil:
		err = json.Unmarshal(p.buf[:n], &r)
	}
	if err != nil {
		closeAll(fds)
		p.drop(c)
		return
	}
	if flags&unix.MSG_CTRUNC != 0 {
		closeAll(fds)
		p.answer(c, r.Seq, fail(fmt.Errorf("%w: descriptors were lost", ErrFull)), nil)
		return
	}
	p.handle(c, &r, fds)
}

// answer sends a response. Who does not read what it has asked for is disconnected.
func (p *process) answer(c *conn, seq uint64, r response, fds []int) {
	r.Seq = seq
	text, err := encode(r)
	var oob []byte
	if err == nil && len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err == nil {
		_, err = unix.SendmsgN(c.fd, text, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	}
	if errors.Is(err, unix.ETOOMANYREFS) { // too many descriptors of the user are under way
		p.answer(c, seq, fail(fmt.Errorf("%w: %w", ErrFull, err)), nil)
		return
	}
	if err != nil {
		p.drop(c)
	}
}

// handle carries out a request. The descriptors are the callee's.
func (p *process) handle(c *conn, r *request, fds []int) {
	if r.Op == opServe && len(fds) == 1 && c.version != 0 {
		p.serve(c, r, fds[0])
		return
	}
	if r.Op == opKeep && p.mayKeep(c, r, len(fds)) == nil {
		if err := p.keep(r.Name, entry{slices.Clone(r.Data), fds}); err != nil {
			closeAll(fds)
			p.answer(c, r.Seq, fail(err), nil)
			return
		}
		p.answer(c, r.Seq, response{}, nil)
		return
	}
	closeAll(fds)
	answer, out, err := p.request(c, r, len(fds))
	if err != nil {
		answer, out = fail(err), nil
	}
	p.answer(c, r.Seq, answer, out)
}

// mayKeep checks a request to keep.
func (p *process) mayKeep(c *conn, r *request, files int) error {
	if err := p.owns(c); err != nil {
		return err
	}
	return check(r.Name, r.Data, files)
}

// owns refuses who has not the role of the daemon.
func (p *process) owns(c *conn) error {
	if p.owner == nil || p.owner.conn != c {
		return fmt.Errorf("%w: this connection has not the role of the daemon", ErrRefused)
	}
	p.owner.deadline = time.Now().Add(startWaits(p.owner.doing)) // it goes on
	return nil
}

// request carries out what needs no descriptors of the client.
func (p *process) request(c *conn, r *request, files int) (answer response, fds []int, err error) {
	if r.Op == opHello {
		return p.hello(c, r)
	}
	if c.version == 0 {
		return answer, nil, fmt.Errorf("%w: hello comes first", ErrRefused)
	}
	switch r.Op { // anybody's
	case opStatus:
		return response{Status: p.status()}, nil, nil
	case opStart:
		p.startAsked()
		return response{Status: p.status()}, nil, nil
	case opEnded:
		p.told(r.Name)
		return response{Status: p.status()}, nil, nil
	case opDrop:
		return answer, nil, p.giveUpAsked()
	case opServe:
		return answer, nil, fmt.Errorf("%w: serve comes with the program", ErrRefused)
	}
	if err := p.owns(c); err != nil {
		return answer, nil, err
	}
	switch r.Op {
	case opReady:
		p.ready(r.Untold)
	case opStarting:
		p.starting(r.Name)
	case opKeep:
		return answer, nil, p.mayKeep(c, r, files)
	case opForget:
		p.forget(r.Name)
	case opGet:
		if e, there := p.kept[r.Name]; there {
			return response{Name: r.Name, Data: e.data}, e.fds, nil
		}
	case opNext:
		name := p.next(r.Name)
		e := p.kept[name]
		return response{Name: name, Data: e.data}, e.fds, nil
	case opLeave:
		p.leave(r.End, r.To)
	case opYield:
		p.end = true
	case opCommit:
		if p.follows >= 0 {
			_ = unix.Close(p.follows)
			p.follows = -1
		}
	default:
		return answer, nil, fmt.Errorf("%w: unknown request %.20q", ErrRefused, r.Op)
	}
	return answer, nil, nil
}

// hello agrees on a version, and refuses a client of another home.
func (p *process) hello(c *conn, r *request) (answer response, fds []int, err error) {
	if r.Home == nil || *r.Home != p.id {
		return answer, nil, fmt.Errorf("%w, of which yours may be a copy", ErrCopy)
	}
	common := min(r.To, p.span.to)
	if common < max(r.From, p.span.from) {
		return answer, nil, fmt.Errorf("%w: this holder speaks versions %d to %d of its protocol", ErrRefused, p.span.from, p.span.to)
	}
	c.version = common
	return response{Version: common, Status: &Status{PID: os.Getpid(), Managed: p.managed}}, nil, nil
}
