package holder

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// askLocked has the holder do something. One that does not answer is killed and replaced once this daemon serves: it has
// everything itself then, while each request would wait for answerWait.
func (c *Client) askLocked(fn func(*wireConn) error) error {
	conn := c.conn
	err := fn(conn)
	if !c.ready || !errors.Is(err, ErrGone) || errors.Is(err, errEnded) || !conn.kill(c.Home) {
		return err
	}
	c.replaceLocked()
	if c.conn == nil {
		return err
	}
	return fn(c.conn)
}

// kill kills the holder of a home, and reports whether it did. The number is what the holder has told: it may be that of
// another process if it runs in another pid namespace, or has ended.
func (c *wireConn) kill(home string) bool {
	fd, err := unix.PidfdOpen(c.pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.pid))
	if err != nil || !bytes.HasPrefix(line, []byte(Name+"\x00"+home+"\x00")) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
