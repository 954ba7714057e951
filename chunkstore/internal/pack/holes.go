package pack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// PageSize is the unit in which space inside of a pack is given back.
const PageSize = 4 << 10

// Span is a part of a pack, in bytes.
type Span struct{ Off, End int64 }

// Settled gives the lengths of the packs that no writer holds. The index names all records that are needed in these
// bytes, if it is read after the call. More may be appended behind them.
func (ps *Set) Settled() map[uint32]int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	m := make(map[uint32]int64, len(ps.all))
	for num, p := range ps.all {
		if p.holds == 0 && !ps.frozen {
			m[num] = p.size
		}
	}
	return m
}

// Occupied gives the bytes that each pack takes for records, live or not: its length without header and holes.
func (ps *Set) Occupied() map[uint32]int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	m := make(map[uint32]int64, len(ps.all))
	for num, p := range ps.all {
		m[num] = max(p.size-HeaderSize-p.holes, 0)
	}
	return m
}

// Holes says where a pack is given back: the spans between live records that have whole pages. Mark is for Punched.
type Holes struct {
	Spans []Span
	Mark  uint64
}

// Punched reports whether the last Punch of a pack had this mark, which is not 0, or can do nothing.
func (ps *Set) Punched(num uint32, mark uint64) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.all[num]
	return p == nil || ps.solid || ps.frozen || p.mark == mark
}

// Punch gives the space of spans of a pack back to the file system. Nothing may need them any more, also after a
// power loss: readers find zeros there, in all of their bytes. So what lies between two records that are needed is
// records or zeros, and nothing that was stored can be taken for a record. It does nothing where the file system makes
// no holes, and in a pack that was removed.
func (ps *Set) Punch(num uint32, holes Holes) error {
	ps.mu.Lock()
	p, solid := ps.all[num], ps.solid || ps.frozen
	if p == nil || solid {
		ps.mu.Unlock()
		return nil
	}
	p.users++
	ps.mu.Unlock()
	defer ps.release(p)
	for _, s := range holes.Spans {
		err := punch(int(p.f.Fd()), s)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			ps.mu.Lock()
			ps.solid = true
			ps.mu.Unlock()
			return nil
		}
		if err != nil {
			return fmt.Errorf("free space in pack %d: %w", num, err)
		}
		ps.points.At("pack punched")
	}
	ps.appendMu.Lock()
	defer ps.appendMu.Unlock()
	n, err := p.countHoles(p.alloc)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.holes, p.mark = n, holes.Mark
	return err
}

func punch(fd int, s Span) error {
	for {
		err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, s.Off, s.End-s.Off)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// countHoles returns how many of a pack's first bytes take no space, if nothing is allocated behind them.
func (p *file) countHoles(end int64) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(p.f.Fd()), &st); err != nil {
		return 0, err
	}
	return max((end+PageSize-1)/PageSize*PageSize-st.Blocks*512, 0), nil
}
