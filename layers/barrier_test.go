package layers

import (
	"testing"
	"time"
)

// TestHeld checks what a transport relies on: a change while Held is false gets in, or waits for a gate that tells when
// it opens, after Held has become false.
func TestHeld(t *testing.T) {
	o := new(Overlay)
	opened := 0
	stop := o.WhenOpen(func() {
		if o.Held() {
			t.Error("told while the gate is closed")
		}
		opened++
	})
	want := func(held bool, n int) {
		t.Helper()
		if o.Held() != held || opened != n {
			t.Errorf("held %v, opened %d times; want %v, %d", o.Held(), opened, held, n)
		}
	}
	want(false, 0)
	open := o.gate.shut()
	want(true, 0)
	open()
	want(false, 1)
	if !o.Pause() || o.Pause() {
		t.Error("paused twice, or never")
	}
	open = o.gate.shut() // a seal of a paused workspace
	open()
	want(true, 1)
	if !o.Resume() || o.Resume() {
		t.Error("resumed twice, or never")
	}
	want(false, 2)

	// A gate is held while it waits for a change that is inside.
	o.gate.RLock()
	done := make(chan bool)
	go func() { done <- o.Pause() }()
	for !o.Held() {
		time.Sleep(time.Millisecond)
	}
	o.gate.RUnlock()
	<-done
	stop()
	o.Resume()
	want(false, 2)
}
