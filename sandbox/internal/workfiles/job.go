package workfiles

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/workfiles/scoped"
)

// job is a call in the child. One goroutine works for it, and one listens to the parent.
type job struct {
	task
	ctx  context.Context
	conn net.Conn
	out  *writer

	gate   *gate
	inside bool // of the gate: while it works, and not while it waits for the parent

	goes chan struct{} // closed when the parent has agreed
	body chan []byte   // pieces of what a file is to have; a nil one is the end
	used chan struct{} // tells that a piece was used
	rest []byte        // of a piece
	over bool          // the end was read
}

// listen takes what the parent sends, and ends the call when that closes the socket.
func (j *job) listen(in *reader, cancel context.CancelFunc) {
	defer cancel()
	for {
		k, text, err := in.next()
		if err != nil {
			return
		}
		switch k {
		case proceed:
			close(j.goes)
			continue
		case data:
		case end:
			text = nil
		default:
			return
		}
		select {
		case j.body <- text:
		case <-j.ctx.Done():
			return
		}
		select {
		case <-j.used:
		case <-j.ctx.Done():
			return
		}
	}
}

// enter enters the gate; exit leaves it.
func (j *job) enter() error {
	err := j.gate.enter(j.ctx)
	j.inside = err == nil
	return err
}

func (j *job) exit() {
	if j.inside {
		j.inside = false
		j.gate.exit()
	}
}

// apart runs what waits for the parent outside of the gate. What is left to do for a call that is cancelled meanwhile
// is done there, too.
func (j *job) apart(fn func() error) error {
	if !j.inside {
		return fn()
	}
	j.exit()
	if err := fn(); err != nil {
		return err
	}
	return j.enter()
}

// Read implements io.Reader: it gives what a file is to have.
func (j *job) Read(p []byte) (int, error) {
	for len(j.rest) == 0 {
		if j.over {
			return 0, io.EOF
		}
		err := j.apart(func() error {
			select {
			case j.rest = <-j.body:
				return nil
			case <-j.ctx.Done():
				return j.ctx.Err()
			}
		})
		if err != nil {
			return 0, err
		}
		if j.over = j.rest == nil; len(j.rest) == 0 {
			j.use()
		}
	}
	n := copy(p, j.rest)
	if j.rest = j.rest[n:]; len(j.rest) == 0 {
		j.use()
	}
	return n, nil
}

// use tells that a piece was used.
func (j *job) use() {
	select {
	case j.used <- struct{}{}:
	case <-j.ctx.Done():
	}
}

// gatedWriter writes to the socket of a job.
type gatedWriter struct{ j *job }

func (w gatedWriter) Write(p []byte) (n int, err error) {
	err = w.j.apart(func() error {
		n, err = w.j.conn.Write(p)
		return err
	})
	return n, err
}

// run opens the root, and does what is asked when the parent has agreed.
func (j *job) run() (any, error) {
	r, err := j.open()
	if err != nil {
		return nil, err
	}
	r.Plain = j.Plain
	defer func() {
		if r != nil {
			r.Close()
		}
	}()
	if err := j.out.send(opened, nil); err != nil {
		return nil, err
	}
	if err := j.out.flush(); err != nil {
		return nil, err
	}
	err = j.apart(func() error {
		select {
		case <-j.goes:
			return nil
		case <-j.ctx.Done():
			return j.ctx.Err()
		}
	})
	if err != nil {
		return nil, err
	}
	if j.Do == Watch { // it must not keep the mount
		r.Close()
		r = nil
		j.exit()
	}
	return j.do(r)
}

// open opens the root of the mount, with the rights of this process: a user need not have any to the directories above.
func (j *job) open() (r *scoped.Root, err error) {
	if j.User == nil {
		return j.openRoot()
	}
	done := make(chan struct{})
	go func() { // on a thread that has not given up its rights
		defer close(done)
		r, err = j.openRoot()
	}()
	<-done
	return r, err
}

func (j *job) openRoot() (*scoped.Root, error) {
	above := "/"
	if j.Mount.Process != 0 {
		above = "/proc/" + strconv.Itoa(j.Mount.Process) + "/root"
	}
	fd, err := unix.Open(above, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: the mount namespace of the workspace is gone: %w", api.ErrConflict, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written
	return scoped.OpenMount(fd, j.Mount.Path, j.Mount.Device)
}

// openInside is open for a call that is outside of the gate: it is inside as long as the root is open.
func (j *job) openInside() (*scoped.Root, error) {
	if err := j.enter(); err != nil {
		return nil, err
	}
	r, err := j.open()
	if err != nil {
		j.exit()
		return nil, err
	}
	r.Closed = j.exit
	return r, nil
}
