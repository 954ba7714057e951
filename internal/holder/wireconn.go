package holder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
)

// wireConn is a connection to a holder.
type wireConn struct {
	pid     int
	version int
	managed bool // a service manager starts another one when it ends
	socket  *net.UnixConn
	gone    chan struct{} // closed when the holder does not read any more

	seq     uint64 // guarded by Client.mu, as are all calls
	answers chan answer
}

type answer struct {
	response
	files []*os.File
}

// dial connects to the holder of a home, as exchange does. ErrNone if there is none.
func dial(ctx context.Context, dir string) (*wireConn, error) {
	home, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil { // whoever opens the home says why
		return nil, ErrNone
	}
	defer func() { _ = home.Close() }()
	path := fmt.Sprintf("/proc/self/fd/%d/%s", home.Fd(), SocketName)
	limited, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	s, err := (&net.Dialer{}).DialContext(limited, "unixpacket", path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	socket, ok := s.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(ErrGone, s.Close())
	}
	return newWireConn(ctx, socket, int(home.Fd()), listener(socket))
}

// listener is the process that listens at the other end of a connection; 0 if it is not visible here.
func listener(socket *net.UnixConn) (pid int) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // an error leaves 0
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// silent is the error of a holder that does not answer in time.
func silent(pid int) error {
	if why := processes.StandsStill(pid); why != "" {
		return fmt.Errorf("%w: process %d%s lets it go on", ErrStopped, pid, why)
	}
	return fmt.Errorf("%w: process %d", ErrGone, pid)
}

// newWireConn says hello to the holder of a process, which errors name; 0 if that is not known. It takes the socket over.
func newWireConn(ctx context.Context, socket *net.UnixConn, home, pid int) (*wireConn, error) {
	c := &wireConn{pid: pid, socket: socket, gone: make(chan struct{}), answers: make(chan answer, 1)}
	id, err := identityOf(home)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	go c.read() // ends with the connection
	r, err := c.call(ctx, &request{Op: opHello, From: versions.from, To: versions.to, Home: &id})
	if err != nil {
		_ = c.close() // the first error is the one to tell
		return nil, err
	}
	c.version = r.Version
	if r.Status != nil {
		c.pid, c.managed = r.Status.PID, r.Status.Managed
	}
	return c, nil
}

// read takes the responses until the connection ends.
func (c *wireConn) read() {
	defer close(c.gone)
	buf, oob := make([]byte, maxMessage), make([]byte, oobSize)
	for {
		n, oobn, flags, _, err := c.socket.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 {
			return
		}
		fds, err := rights(oob[:oobn])
		a := answer{}
		for _, fd := range fds {
			a.files = append(a.files, os.NewFile(uintptr(fd), "kept"))
		}
		if err == nil {
			err = json.Unmarshal(buf[:n], &a.response)
		}
		if err != nil || flags&unix.MSG_TRUNC != 0 {
			a.close()
			return
		}
		if flags&unix.MSG_CTRUNC != 0 { // this process has no room
			a.close()
			a.files, a.response = nil, response{Seq: a.Seq, Error: "descriptors were lost: too many open files", Class: "full"}
		}
		select {
		case old := <-c.answers: // nobody waits for it any more
			old.close()
		default:
		}
		c.answers <- a
	}
}

func (a *answer) close() {
	for _, f := range a.files {
		_ = f.Close() // nothing was written
	}
}

func (c *wireConn) close() error {
	err := c.socket.Close()
	<-c.gone
	return err
}

// call sends a request and waits for its response, which has no descriptors.
func (c *wireConn) call(ctx context.Context, r *request, files ...*os.File) (response, error) {
	a, err := c.exchange(ctx, r, files...)
	a.close()
	return a.response, err
}

// exchange sends a request and waits for its response; with a ctx that can end, as long as that has not.
func (c *wireConn) exchange(ctx context.Context, r *request, files ...*os.File) (answer, error) {
	c.seq++
	r.Seq = c.seq
	if ctx.Done() == nil {
		limited, cancel := context.WithTimeout(ctx, answerWait)
		defer cancel()
		ctx = limited
	}
	if err := c.send(r, files); err != nil {
		return answer{}, err
	}
	for {
		select {
		case a := <-c.answers:
			if a.Seq == r.Seq {
				return a, a.err()
			}
			a.close()
		case <-c.gone:
			select {
			case a := <-c.answers: // the last one
				if a.Seq == r.Seq {
					return a, a.err()
				}
				a.close()
			default:
			}
			return answer{}, errEnded
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return answer{}, silent(c.pid)
			}
			return answer{}, ctx.Err()
		}
	}
}

// send sends a request with descriptors of files, which stay as they are.
func (c *wireConn) send(r *request, files []*os.File) error {
	text, err := encode(r)
	if err != nil {
		return err
	}
	if err := c.socket.SetWriteDeadline(time.Now().Add(answerWait)); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return withDescriptors(files, nil, func(fds []int) error {
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		_, _, err := c.socket.WriteMsgUnix(text, oob, nil)
		if errors.Is(err, unix.ETOOMANYREFS) {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			return errEnded
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		return nil
	})
}

// withDescriptors calls fn with the descriptors of files, which are not closed meanwhile.
func withDescriptors(files []*os.File, fds []int, fn func(fds []int) error) error {
	if len(files) == 0 {
		return fn(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = withDescriptors(files[1:], append(fds, int(fd)), fn) })
	if err != nil {
		return fmt.Errorf("%w: a file is closed: %w", ErrRefused, err)
	}
	return inner
}

func (c *wireConn) keep(k Kept) error {
	_, err := c.call(context.Background(), &request{Op: opKeep, Name: k.Name, Data: k.Data}, k.Files...)
	return err
}

// serve takes the role of the daemon.
func (c *wireConn) serve(ctx context.Context, s Start, wait bool) (response, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return response{}, err
	}
	defer func() { _ = self.Close() }()
	if !wait {
		ctx = context.Background()
	}
	r := &request{Op: opServe, Start: &s, Wait: wait}
	if _, err := encode(r); err != nil { // only what is of this program
		s.Env = slices.DeleteFunc(slices.Clone(s.Env), func(v string) bool { return !strings.HasPrefix(v, "SNAPFS_") && !strings.HasPrefix(v, "PATH=") })
	}
	return c.call(ctx, r, self)
}

// all gives what is kept.
func (c *wireConn) all() (all []Kept, err error) {
	for name := ""; ; {
		a, err := c.exchange(context.Background(), &request{Op: opNext, Name: name})
		if err == nil && a.Name != "" && a.Name <= name {
			err = fmt.Errorf("%w: %q after %q", io.ErrUnexpectedEOF, a.Name, name)
		}
		if err != nil {
			a.close()
			for _, k := range all {
				(&answer{files: k.Files}).close()
			}
			return nil, err
		}
		if a.Name == "" {
			return all, nil
		}
		all = append(all, Kept{a.Name, a.Data, a.files})
		name = a.Name
	}
}

// awaitEnd waits for the end of a holder that has said that it ends.
func (c *wireConn) awaitEnd() {
	select {
	case <-c.gone:
	case <-time.After(answerWait):
	}
}
