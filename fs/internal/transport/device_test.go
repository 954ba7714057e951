package transport

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snapfs/fs/internal/fakefs"
)

// TestStuckRequests checks that requests that are not answered hold up no others, as long as there is room.
func TestStuckRequests(t *testing.T) {
	f := fakefs.New()
	_, dir, _ := serveFake(t, f)
	var stuck []*exec.Cmd
	for i := range 20 {
		stuck = append(stuck, fakefs.Program(t, "stat", filepath.Join(dir, "wait"+string(rune('a'+i)))))
		f.AwaitOne(t)
		if err := fakefs.Stat(t, filepath.Join(dir, "other"+string(rune('a'+i)))); err != nil {
			t.Fatalf("with %d stuck: %v", i+1, err)
		}
	}
	f.AnswerAll()
	for _, cmd := range stuck {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestPanic checks that a panic in a request is that request's error and a line in the log.
func TestPanic(t *testing.T) {
	_, dir, said := serveFake(t, fakefs.New())
	if fakefs.Stat(t, filepath.Join(dir, "panic")) == nil {
		t.Error("stat works")
	}
	if err := fakefs.Stat(t, filepath.Join(dir, "x")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if !strings.Contains(said.String(), "as asked") {
		t.Errorf("the log says %q", said)
	}
}

// TestAbort checks that an abort ends the programs that wait, and that Done waits for the request.
func TestAbort(t *testing.T) {
	f := fakefs.New()
	m, dir, _ := serveFake(t, f)
	cmd := fakefs.Program(t, "stat", filepath.Join(dir, "wait"))
	f.AwaitOne(t)
	if m.Ended() {
		t.Error("ended too early")
	}
	m.Abort()
	if cmd.Wait() == nil {
		t.Error("stat works")
	}
	if !m.Ended() {
		t.Error("not ended by an abort")
	}
	select {
	case <-m.done:
		t.Error("done while a request runs")
	case <-time.After(300 * time.Millisecond):
	}
	f.AnswerAll()
	fakefs.WaitDone(t, m.done)
	m.Abort() // does nothing
}

// TestShut checks the way of aborting that needs no sysfs, on an idle and on a busy device.
func TestShut(t *testing.T) {
	if transportOfTest() == "uring" {
		return // entries hold the connection, which is why there is no uring without a control file
	}
	for _, busy := range []bool{false, true} {
		m, dir, _ := serveFake(t, fakefs.New())
		if busy {
			if err := fakefs.Stat(t, filepath.Join(dir, "x")); err != nil {
				t.Fatal(err)
			}
		} else {
			time.Sleep(2 * idleAfter)
		}
		m.t.disconnect()
		fakefs.WaitDone(t, m.done)
		if fakefs.Stat(t, filepath.Join(dir, "y")) == nil {
			t.Error("stat works")
		}
	}
}

// TestIdle checks that an idle device wakes up, again and again.
func TestIdle(t *testing.T) {
	m, dir, _ := serveFake(t, fakefs.New())
	d, ok := m.t.(*device)
	if !ok {
		return // a lane sleeps in the kernel
	}
	for i := range 3 {
		for since := time.Now(); d.cur.Load() != nil; time.Sleep(10 * time.Millisecond) {
			if time.Since(since) > time.Minute {
				t.Fatal("the leader does not go")
			}
		}
		if err := fakefs.Stat(t, filepath.Join(dir, "x"+string(rune('a'+i)))); err != nil {
			t.Fatal(err)
		}
	}
}
