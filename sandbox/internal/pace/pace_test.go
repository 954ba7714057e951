package pace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"snapfs/sandbox/api"
)

// peer sends and takes the pieces that it is given, each after a while.
type peer struct {
	pieces []int
	each   time.Duration
}

func (p *peer) next() (int, error) {
	if len(p.pieces) == 0 {
		return 0, io.EOF
	}
	time.Sleep(p.each)
	n := p.pieces[0]
	p.pieces = p.pieces[1:]
	return n, nil
}

func (p *peer) Read([]byte) (int, error)  { return p.next() }
func (p *peer) Write([]byte) (int, error) { return p.next() }

// repeat gives a piece so many times.
func repeat(piece, times int) (all []int) {
	for range times {
		all = append(all, piece)
	}
	return all
}

// TestPace: at 1,000 bytes within 10 seconds, who is slower is given up once it is 10 seconds behind.
func TestPace(t *testing.T) {
	for _, tc := range []struct {
		what   string
		pieces []int
		each   time.Duration
		took   int // pieces before it is given up, -1 for never
	}{
		{"fast", repeat(1000, 1000), time.Second, -1},
		{"just so", repeat(100, 1000), time.Second, -1},
		{"a byte each second", repeat(1, 100), time.Second, 11},
		{"a byte after each pause", repeat(1, 100), 4 * time.Second, 3},
		{"fast at first", append(repeat(1000_000, 100), repeat(1, 100)...), time.Second, 111},
		{"one pause that is too long", []int{1, 1000}, 11 * time.Second, 1},
	} {
		for _, side := range []string{"reader", "writer"} {
			t.Run(tc.what+", "+side, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &peer{tc.pieces, tc.each}
					move := NewReader(p, New(1000, 10*time.Second)).Read
					if side == "writer" {
						move = NewWriter(p, New(1000, 10*time.Second)).Write
					}
					took, err := 0, error(nil)
					for ; err == nil; took++ {
						time.Sleep(time.Hour) // what does not wait for the peer does not count
						_, err = move(nil)
					}
					took--
					if tc.took < 0 && !errors.Is(err, io.EOF) || tc.took >= 0 && (!errors.Is(err, api.ErrInvalid) || took != tc.took) {
						t.Errorf("%d pieces, then %v", took, err)
					}
				})
			})
		}
	}
}

// TestDeadline: a wait that a deadline has ended is told as what it is.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1000, 10*time.Second)
		_, err := p.Wait(func() (int, error) {
			time.Sleep(time.Until(p.Deadline()))
			return 0, fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
		})
		if !errors.Is(err, api.ErrInvalid) {
			t.Error(err)
		}
		if _, err := p.Wait(func() (int, error) { return 1000, nil }); err == nil {
			t.Error("it was waited for again")
		}
	})
}
