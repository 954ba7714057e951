package layers

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// maxHeld bounds what a source layer has in memory of extended attributes and targets of symlinks, in bytes. What comes
// beyond it is read from the journal when it is asked for.
const maxHeld = 16 << 20

// sourceMore is of any size.
type sourceMore struct {
	xattrs []squashfs.Xattr // as a layer has them
	target string           // of a symlink
}

// size is in memory.
func (m *sourceMore) size() int64 {
	n := len(m.target)
	for _, a := range m.xattrs {
		n += len(a.Name) + len(a.Value) + int(unsafe.Sizeof(a))
	}
	return int64(n)
}

// bare reports whether there are no extended attributes. If in doubt there are.
func (x *sourceInode) bare() bool { return x.at == 0 && len(x.xattrs) == 0 }

// more gives what an inode has beside its attributes; nothing for nil.
func (s *sourceStore) more(x *sourceInode) (sourceMore, error) {
	if x == nil {
		return sourceMore{}, nil
	}
	if x.at == 0 {
		return x.sourceMore, nil
	}
	return s.log.more(x.at)
}

// writeInode appends a record that tells of an inode, and holds as much of that as may be. Nobody else has x yet, or mu is
// held.
func (j *sourceJournal) writeInode(r *record, x *sourceInode) error {
	at := j.end
	err := j.write(r)
	if err == nil {
		j.hold(x, at)
	}
	return err
}

// hold counts what an inode has in memory, or has it left to the record at an offset. That of the root, at 0, is held.
func (j *sourceJournal) hold(x *sourceInode, at int64) {
	n := x.size()
	if n == 0 {
		return
	}
	if at > 0 && j.held+n > cmp.Or(j.s.opts.held, maxHeld) {
		x.sourceMore, x.at = sourceMore{}, at
		return
	}
	j.held += n
}

// more reads what a record tells of an inode. It needs no lock.
func (j *sourceJournal) more(at int64) (sourceMore, error) {
	var head [8]byte
	if _, err := j.f.ReadAt(head[:], at); err != nil {
		return sourceMore{}, fmt.Errorf("journal of a directory: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > maxRecord {
		return sourceMore{}, errJournal
	}
	payload := make([]byte, n)
	if _, err := j.f.ReadAt(payload, at+int64(len(head))); err != nil {
		return sourceMore{}, fmt.Errorf("journal of a directory: %w", err)
	}
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return sourceMore{}, errJournal
	}
	r := readRecord(payload)
	switch payload[0] {
	case recordDir:
		_, _, _, _, _ = r.Uint(), r.Uint(), r.text(), r.Uint(), r.Uint()
	case recordInode:
		_, _ = r.Uint(), r.Uint()
	default:
		return sourceMore{}, errJournal
	}
	x := r.inode(0)
	if r.Bad {
		return sourceMore{}, errJournal
	}
	return x.sourceMore, nil
}

var errJournal = fmt.Errorf("the journal of a directory is damaged: %w", unix.EIO)
