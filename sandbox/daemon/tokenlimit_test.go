package daemon

import (
	"errors"
	"fmt"
	"testing"
)

// TestMeters: what a session may ask is bounded in time and at a time, and another session does not notice.
func TestMeters(t *testing.T) {
	m := newMeters()
	l := Limits{Rate: 0.001, Burst: 3, Calls: 2, Upload: 1}
	first, err := m.enter("a", l)
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.enter("a", l)
	if err != nil {
		t.Fatal(err)
	}
	var many tooManyError
	if _, err := m.enter("a", l); !errors.As(err, &many) {
		t.Errorf("a third at a time: %v", err)
	}
	if _, err := m.enter("b", l); err != nil {
		t.Errorf("another session: %v", err)
	}
	first()
	third, err := m.enter("a", l)
	if err != nil {
		t.Errorf("when one has ended: %v", err)
	}
	second()
	third()
	if _, err := m.enter("a", l); !errors.As(err, &many) || many.seconds() < 100 {
		t.Errorf("a fourth in a time: %v, to come again after %d s", err, many.seconds())
	}
	if _, err := m.enter("a", Limits{Rate: 1e9, Burst: 3, Calls: 2}); err != nil {
		t.Errorf("with other limits: %v", err)
	}
}

// TestMetersAreBounded: however many addresses and sessions there are, the tables stay small.
func TestMetersAreBounded(t *testing.T) {
	m := newMeters()
	refused := 0
	for i := range 3 * maxAddresses {
		if m.stranger(fmt.Sprint(i)) != nil {
			refused++
		}
		leave, err := m.enter(fmt.Sprint(i), Limits{Rate: 1e9, Burst: 10, Calls: 1})
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	if len(m.addresses) > maxAddresses || len(m.sessions) > maxIdleUsage {
		t.Errorf("%d addresses, %d sessions", len(m.addresses), len(m.sessions))
	}
	if refused == 0 {
		t.Error("addresses beyond those that are told apart have no limit")
	}
}

// TestVisitors: an address leaves room for others.
func TestVisitors(t *testing.T) {
	v := newVisitors(100)
	count := func(address string) (n int) {
		for range 200 {
			if v.enter(address) {
				n++
			}
		}
		return n
	}
	if n := count("a"); n != 50 {
		t.Errorf("one address has %d connections of 100", n)
	}
	if n := count("b"); n != 25 {
		t.Errorf("another has %d of the 50 that are left", n)
	}
	for range 50 {
		v.leave("a")
	}
	if n := count("c"); n == 0 || v.of["a"] != 0 {
		t.Errorf("%d of what was given back, table %v", n, v.of)
	}
}
