package workfiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// exchange is the parent's side of one call.
type exchange struct {
	child *child
	conn  net.Conn
	in    *reader
	out   *writer
	close func() // once is enough, and at any time
}

// run makes the call. When its socket ends, that is errChildGone: the child has died, or the caller's context has
// ended.
func (x *exchange) run(t task, c Call, into any) error {
	if err := x.out.sendJSON(order, t); err != nil {
		return errChildGone
	}
	if err := x.out.flush(); err != nil {
		return errChildGone
	}
	k, text, err := x.in.next()
	switch {
	case err != nil:
		return errChildGone
	case k == fault:
		return failure(text)
	case k != opened:
		return fmt.Errorf("the process for files says %c", k)
	}
	if err := c.Opened(); err != nil {
		return err
	}
	if err := x.out.send(proceed, nil); err != nil {
		return errChildGone
	}
	if err := x.out.flush(); err != nil {
		return errChildGone
	}
	if c.Body == nil {
		return x.take(c, into)
	}
	done := make(chan error, 1)
	go func() { done <- x.take(c, into) }() // ends with the socket, awaited below
	err = x.give(c, done)
	if err == nil || errors.Is(err, errChildGone) { // the child may have refused it before all was sent
		return <-done
	}
	x.close()
	if e := <-done; err == nil {
		err = e
	}
	return err
}

// give sends the body, as long as the call is not done.
func (x *exchange) give(c Call, done chan error) error {
	room := make([]byte, buffer)
	sent := int64(0)
	for {
		n, readErr := c.Body.Read(room)
		sent += int64(n)
		if c.Size >= 0 && (sent > c.Size || errors.Is(readErr, io.EOF) && sent < c.Size) {
			return fmt.Errorf("%w: the contents have %d bytes or more, not %d", api.ErrInvalid, sent, c.Size)
		}
		if len(done) > 0 {
			return nil
		}
		if n > 0 {
			if err := x.out.send(data, room[:n]); err != nil {
				return errChildGone
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			err := x.out.send(end, nil)
			if err == nil {
				err = x.out.flush()
			}
			if err != nil {
				return errChildGone
			}
			return nil
		case readErr != nil:
			return fmt.Errorf("reading the contents: %w", readErr)
		}
	}
}

// take reads the result, and what comes before.
func (x *exchange) take(c Call, into any) error {
	for {
		k, text, err := x.in.next()
		if err != nil {
			return errChildGone
		}
		switch k {
		case data:
			_, err = c.Data.Write(text)
		case item:
			err = c.Item(text)
		case ready:
			err = c.Ready()
		case result:
			return json.Unmarshal(text, into)
		case fault:
			return failure(text)
		default:
			err = fmt.Errorf("the process for files says %c", k)
		}
		if err != nil {
			return err
		}
	}
}

// failure reads an error.
func failure(text []byte) error {
	var e wire.Error
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	return &e
}
