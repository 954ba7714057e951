package layers

import (
	"errors"
	"testing"

	"snapfs/internal/livestate"
)

// TestSettlePaused: what is left to a workspace that is paused by then does not hold up who serves it, and is settled
// when it goes on.
func TestSettlePaused(t *testing.T) {
	m := newMortal(t, replayLower(t), "")
	in := m.state.Requests().Begin(2, 9, 1, true)
	dead := make(chan struct{})
	steps = func(s string) {
		if s == "inode made" {
			close(dead)
			select {}
		}
	}
	mkdir := func(o *Overlay, in *livestate.Request) error {
		_, err := o.Noting(in).Mkdir(Caller{}, RootNode, "new", 0o755)
		return err
	}
	go func(o *Overlay) { _ = mkdir(o, in) }(m.o)
	<-dead
	steps = nil
	before, state := m.o, m.state
	m.state = m.opened()
	t.Cleanup(func() {
		if err := errors.Join(before.Close(), state.Close()); err != nil {
			t.Error(err)
		}
	})
	o, err := New(m.upper(), m.work(), m.lowers, Options{InoBase: m.base(), Live: m.state})
	if err != nil {
		t.Fatal(err)
	}
	m.o = o
	o.Pause()
	if err := o.Settle(m.state.Requests()); !errors.Is(err, errSettling) {
		t.Errorf("paused: got %v, want %v", err, errSettling)
	}
	done := make(chan error)
	go func() { done <- mkdir(o, m.state.Requests().Begin(2|livestate.Resent, 9, 1, true)) }()
	o.Resume()
	if err := <-done; err != nil {
		t.Errorf("asked for again: %v", err)
	}
	if err := o.Settle(m.state.Requests()); err != nil {
		t.Errorf("resumed: %v", err)
	}
}
