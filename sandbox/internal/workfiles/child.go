package workfiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/internal/peer"
)

const (
	// mostWorking is how many calls work at a time, beyond one of each workspace, each with a thread, and mostEach how
	// many of one workspace.
	mostWorking, mostEach = 256, 32
	// undoWait is how long a child whose parent has gone waits for calls to undo what they have begun.
	undoWait = 2 * time.Second
	// control is the descriptor of the control socket.
	control = 3
)

// Main is the main function of a child.
func Main() error {
	unix.Umask(0)
	f := os.NewFile(control, "control")
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	parent, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("the control socket is a %T", c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	works := newGates(mostWorking, mostEach)
	var calls sync.WaitGroup
	for {
		conn, err := receive(parent)
		if err != nil {
			break // the parent has gone, or wants this process to end
		}
		calls.Go(func() { serve(ctx, conn, works) })
	}
	cancel()
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }() // ends with the process at the latest
	select {
	case <-done:
	case <-time.After(undoWait): // some hang
	}
	return nil
}

// receive gets the socket of a call.
func receive(from *net.UnixConn) (net.Conn, error) {
	var one [1]byte
	var room [64]byte
	n, oob, _, _, err := from.ReadMsgUnix(one[:], room[:])
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(room[:oob])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("a message without a descriptor: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("a message without a descriptor: %w", err)
	}
	f := os.NewFile(uintptr(fds[0]), "call")
	conn, err := net.FileConn(f)
	return conn, errors.Join(err, f.Close())
}

// serve makes one call.
func serve(ctx context.Context, conn net.Conn, works *gates) {
	defer func() { _ = conn.Close() }() // all was sent, or nobody listens
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := newReader(conn)
	k, text, err := in.next()
	if err != nil || k != order {
		return
	}
	j := &job{ctx: ctx, conn: conn, goes: make(chan struct{}), body: make(chan []byte), used: make(chan struct{})}
	j.out = newWriter(gatedWriter{j})
	if err := json.Unmarshal(text, &j.task); err != nil {
		return
	}
	j.gate = works.join(j.Mount.Device)
	defer works.leave(j.Mount.Device)
	go j.listen(in, cancel) // ends when the socket is closed
	if err := j.enter(); err != nil {
		return
	}
	defer j.exit()
	var answer any
	err = j.User.Do(func() (err error) {
		answer, err = j.run()
		return err
	})
	if errors.Is(err, peer.ErrRights) {
		err = fmt.Errorf("%w: %w: run the daemon as root", api.ErrUnavailable, err)
	}
	if err != nil {
		err = j.out.sendJSON(fault, wire.NewError(err))
	} else {
		err = j.out.sendJSON(result, answer)
	}
	if err == nil {
		_ = j.out.flush() // nobody listens
	}
}
