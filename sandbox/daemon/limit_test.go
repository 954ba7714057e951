package daemon

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestLimited: connections beyond the bound wait until another has ended, and a listener that is closed ends those who
// wait.
func TestLimited(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l := limit(inner, 2, Access{}.who)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	var served []net.Conn
	for range 3 {
		c, err := net.Dial("unix", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // nothing is written
	}
	for range 2 {
		served = append(served, <-accepted)
	}
	select {
	case <-accepted:
		t.Error("a third connection where two may be")
	case <-time.After(50 * time.Millisecond):
	}
	for range 2 { // a second close gives no more room
		_ = served[0].Close()
	}
	third := <-accepted
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a closed listener accepts")
	}
	_ = served[1].Close()
	_ = third.Close()
	if n := len(l.room); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}
