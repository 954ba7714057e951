package layers

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// What the account has of an upper is noted in its work directory, each time that it has changed by a step, and when the
// overlay is closed. A process that was killed leaves a note that is behind by less than a step, and that says so: the
// next one goes on with that and counts anew beside what goes on (Recount). So it does with a note from before others may
// have changed the upper who keep none, such as a daemon of an earlier version (Account.Trust).
//
//	0   magic, 8 bytes
//	8   bytes, 8 bytes
//	16  inodes, 8 bytes
//	24  1: the overlay was closed; 0: it may have gone on, 8 bytes
//	32  exclusive or of the 8 bytes at 0, 8, 16 and 24
//
// Little endian.
const (
	usedNote     = "used"
	usedNoteSize = 40
	usedMagic    = 0x3164657375667073 // "spfused1"
)

// Steps are a 256th of the limit, within these.
const (
	leastStep, mostStep           = 256 << 10, 16 << 20
	leastInodeStep, mostInodeStep = 64, 4096
	stepShare                     = 256
)

func encodeUsed(u Usage, closed bool) []byte {
	b := make([]byte, 0, usedNoteSize)
	end := uint64(0)
	if closed {
		end = 1
	}
	sum := uint64(0)
	for _, v := range []uint64{usedMagic, uint64(u.Bytes), uint64(u.Inodes), end} {
		b = binary.LittleEndian.AppendUint64(b, v)
		sum ^= v
	}
	return binary.LittleEndian.AppendUint64(b, sum)
}

func decodeUsed(b []byte) (u Usage, closed, ok bool) {
	if len(b) != usedNoteSize {
		return u, false, false
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[i*8:]) }
	if at(0) != usedMagic || at(0)^at(1)^at(2)^at(3) != at(4) {
		return u, false, false
	}
	return Usage{int64(at(1)), int64(at(2))}, at(3) == 1, true
}

// openUsed begins with what the note says of an upper, and with nothing where it is new.
func (o *Overlay) openUsed() error {
	a, u := o.opts.Account, o.upper
	if !a.counts() {
		if a != nil {
			a.used.set(Usage{})
		}
		return u.dropUsed()
	}
	used, closed, ok, err := u.readUsed(a)
	if err != nil {
		return err
	}
	if !ok {
		blocks, err := nameIn(u.store.root, ".").blocks()
		if err != nil {
			return err
		}
		closed = true
		err = eachName(u.store.root, func(string, uint64, uint32) error { return errFound })
		if errors.Is(err, errFound) {
			closed, err = false, nil
		}
		if err != nil {
			return err
		}
		used = tally{blocks: blocks}.usage()
	}
	a.used.set(used)
	a.changes.Add(1)
	a.known.Store(closed)
	o.writeUsed(false)
	return nil
}

// Recall begins with what is noted of an upper, by its work directory, that no overlay is over. A note that is true stays
// so: it is as if it was written now.
func (a *Account) Recall(work string) {
	fd, err := openat(unix.AT_FDCWD, work, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return // there is nothing to be recalled
	}
	u := upper{work: fd}
	defer unix.Close(fd) // O_PATH
	if used, closed, ok, err := u.readUsed(a); ok && err == nil {
		a.used.set(used)
		a.known.Store(closed)
		if closed {
			_ = nameIn(u.work, usedNote).utimes(now, now) // else it is counted once more
		}
	}
}

// now is the present time for utimensat(2).
var now = unix.Timespec{Nsec: unix.UTIME_NOW}

// dropUsed removes a note that will not be true any more.
func (u *upper) dropUsed() error {
	err := unix.Unlinkat(u.work, usedNote, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (u *upper) readUsed(a *Account) (used Usage, closed, ok bool, err error) {
	fd, err := openat(u.work, usedNote, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return used, false, false, nil
	}
	if err != nil {
		return used, false, false, err
	}
	defer unix.Close(fd) // read only
	b := make([]byte, usedNoteSize+1)
	n, err := preadFull(fd, b, 0)
	if n != usedNoteSize {
		return used, false, false, nil //nolint:nilerr // it is counted anew
	}
	_ = err // io.EOF
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return used, false, false, err
	}
	used, closed, ok = decodeUsed(b[:n])
	return used, closed && st.Mtim.Nano() >= a.trusted.Load(), ok, nil
}

// noteUsed notes the sum if it has changed by a step.
func (o *Overlay) noteUsed() {
	a := o.opts.Account
	used, noted, limit := a.used.get(), a.noted.get(), a.limit.get()
	step := min(max(limit.Bytes/stepShare, leastStep), mostStep)
	inodes := min(max(limit.Inodes/stepShare, leastInodeStep), mostInodeStep)
	d := used.Bytes - noted.Bytes
	e := used.Inodes - noted.Inodes
	if max(d, -d) >= step || max(e, -e) >= inodes {
		o.writeUsed(false)
	}
}

// writeUsed writes the note. Where that fails, on a full host, the next process goes on with an older one. The gate or
// tree is held, or no call is running.
func (o *Overlay) writeUsed(closed bool) {
	a := o.opts.Account
	used := a.used.get()
	a.noted.set(used)
	if o.upper == nil {
		return
	}
	fd, err := openat(o.upper.work, usedNote, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	defer unix.Close(fd) // what is not written is found out by its sum
	_, _ = pwrite(fd, encodeUsed(used, closed && a.known.Load()), 0)
}

// closeUsed notes what is left when the overlay is closed.
func (o *Overlay) closeUsed() {
	if o.upper == nil || !o.counts() {
		return
	}
	if !o.orphans.live { // a successor has what has no name, else it goes
		sum := o.nameless()
		o.opts.Account.count(Usage{-sum.Bytes, -sum.Inodes})
	}
	o.writeUsed(true)
}
