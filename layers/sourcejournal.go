package layers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"snapfs/internal/varint"
	"snapfs/squashfs"
)

// The journal of a source layer tells what was seen, so that it is shown again after a crash of the process. It is the
// file "journal" beside the copies, records one after the other, little endian:
//
//	0   length of the payload, 4 bytes      8   payload: a byte of kind, then uvarints and strings, each string with
//	4   CRC-32C of the payload, 4 bytes         its length before it
//
// What follows a record that is damaged does not count, as after a power failure. It is then written over.
const (
	recordDir   = 1 + iota // a directory: number, number of the one it is in, name, device, whether left out; inode
	recordNames            // its names: number, count; each: name, number, type, the host's number if that is another
	recordName             // a name that has changed: number of the directory, name, number and type above it
	recordInode            // what else is fixed: number, the host's number; inode, version, kind of copy, sum of a small one
)

// What a recordInode tells of a copy.
const (
	noCopy    = iota
	largeCopy // it has no sum
	smallCopy // of at most maxSummed bytes
)

// maxSummed is of how many bytes a copy is that has a sum. After a power failure a larger one lacks blocks that it should
// have, if data have not reached the disk.
const maxSummed = 4096

const journalName = "journal"

// maxRecord bounds a record that is read.
const maxRecord = 1 << 30

// sourceJournal is an open journal. Its methods need sourceStore.mu.
type sourceJournal struct {
	f    *os.File
	s    *sourceStore
	end  int64 // of the records
	held int64 // bytes of sourceMore in memory
}

// openJournal opens the journal and plays it.
func (s *sourceStore) openJournal() error {
	fd, err := openat(s.copies, journalName, unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return err
	}
	s.log = &sourceJournal{f: os.NewFile(uintptr(fd), journalName), s: s}
	end, err := s.log.play()
	if err != nil {
		return err
	}
	if err := s.log.f.Truncate(end); err != nil {
		return err
	}
	if end > 0 { // of an earlier process perhaps
		s.unsynced.noted, s.unsynced.whole = 1, 1
	}
	s.log.end = end
	return nil
}

func (j *sourceJournal) close() error { return j.f.Close() }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// play takes in all records and tells where they end.
func (j *sourceJournal) play() (end int64, err error) {
	info, err := j.f.Stat()
	if err != nil {
		return 0, err
	}
	in := io.NewSectionReader(j.f, 0, info.Size())
	var head [8]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return end, tornEnd(err)
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if n == 0 || n > maxRecord || n > info.Size()-end-int64(len(head)) {
			return end, nil
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(in, payload); err != nil {
			return end, tornEnd(err)
		}
		if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return end, nil
		}
		j.end = end
		if r := readRecord(payload); !j.s.replay(payload[0], r) || r.Bad {
			return end, nil
		}
		end += int64(len(head)) + n
	}
}

func tornEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// write appends a record, or nothing. What cannot be noted must not be shown.
func (j *sourceJournal) write(r *record) error {
	binary.LittleEndian.PutUint32(r.b, uint32(len(r.b)-8))
	binary.LittleEndian.PutUint32(r.b[4:], crc32.Checksum(r.b[8:], castagnoli))
	if _, err := j.f.WriteAt(r.b, j.end); err != nil {
		_ = j.f.Truncate(j.end) // else the next record is written over it
		return fmt.Errorf("noting what is shown of a directory: %w", err)
	}
	j.end += int64(len(r.b))
	j.s.unsynced.noted++
	return nil
}

// record is a record that is written.
type record struct{ b []byte }

func newRecord(kind byte) *record { return &record{append(make([]byte, 8, 256), kind)} }

func (r *record) put(v uint64)     { r.b = binary.AppendUvarint(r.b, v) }
func (r *record) putText(s string) { r.put(uint64(len(s))); r.b = append(r.b, s...) }

// recordReader reads the payload of a record.
type recordReader struct{ varint.Parser }

func readRecord(payload []byte) *recordReader { return &recordReader{varint.Parser{Rest: payload[1:]}} }

func (r *recordReader) text() string { return string(r.Bytes(r.Count(maxRecord))) }

func (r *record) putInode(x *sourceInode) {
	a := &x.attr
	for _, v := range [...]uint64{
		uint64(a.Mode), uint64(a.Nlink), uint64(a.UID), uint64(a.GID), a.Size, a.Blocks, a.Rdev, uint64(a.Mtime.Sec),
		uint64(a.Mtime.Nsec), uint64(a.Ctime.Sec), uint64(a.Ctime.Nsec), uint64(a.Btime.Sec), uint64(a.Btime.Nsec),
	} {
		r.put(v)
	}
	r.putText(x.target)
	r.put(uint64(len(x.xattrs)))
	for _, a := range x.xattrs {
		r.putText(a.Name)
		r.putText(string(a.Value))
	}
}

func (r *recordReader) inode(number uint64) sourceInode {
	var v [13]uint64
	for i := range v {
		v[i] = r.Uint()
	}
	time := func(i int) squashfs.Time { return squashfs.Time{Sec: int64(v[i]), Nsec: uint32(v[i+1])} }
	x := sourceInode{attr: Attr{
		Ino: number, Mode: uint32(v[0]), Nlink: uint32(v[1]), UID: uint32(v[2]), GID: uint32(v[3]), Size: v[4], Blocks: v[5],
		Rdev: v[6], Blksize: 4096, Atime: time(7), Mtime: time(7), Ctime: time(9), Btime: time(11),
	}}
	x.target = r.text()
	for n := r.Uint(); n > 0 && !r.Bad; n-- {
		x.xattrs = append(x.xattrs, squashfs.Xattr{Name: r.text(), Value: []byte(r.text())})
	}
	return x
}

// dir notes a directory.
func (j *sourceJournal) dir(d *sourceDir) error {
	r := newRecord(recordDir)
	r.put(d.number)
	up := uint64(0)
	if d.up != nil {
		up = d.up.number
	}
	r.put(up)
	r.putText(d.name)
	r.put(d.dev)
	out := uint64(0)
	if d.listed {
		out = 1
	}
	r.put(out)
	r.putInode(&d.sourceInode)
	return j.writeInode(r, &d.sourceInode)
}

// names notes the names in a directory.
func (j *sourceJournal) names(d *sourceDir) error {
	r := newRecord(recordNames)
	r.put(d.number)
	r.put(uint64(len(d.names)))
	for i := range d.names {
		e := &d.names[i]
		number, typ, _ := e.get()
		r.putText(e.name)
		r.put(number)
		r.put(uint64(typ))
		r.put(j.s.bound[number])
	}
	return j.write(r)
}

// name notes a name that has changed.
func (j *sourceJournal) name(d *sourceDir, e *sourceName) error {
	r := newRecord(recordName)
	r.put(d.number)
	r.putText(e.name)
	r.put(e.word.Load() &^ nameGone)
	number, _, _ := e.get()
	r.put(j.s.bound[number])
	return j.write(r)
}

// inode notes what is fixed and no directory.
func (j *sourceJournal) inode(number uint64, x *sourceInode) error {
	r := newRecord(recordInode)
	r.put(number)
	r.put(j.s.bound[number])
	r.putInode(x)
	r.put(uint64(x.version))
	switch {
	case !x.copied:
		r.put(noCopy)
	case x.attr.Size > maxSummed:
		r.put(largeCopy)
	default:
		r.put(smallCopy)
		r.put(uint64(x.sum))
	}
	return j.writeInode(r, x)
}

// replay takes in a record. It is false for one that cannot be.
func (s *sourceStore) replay(kind byte, r *recordReader) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case recordDir:
		return s.replayDir(r)
	case recordNames:
		return s.replayNames(r)
	case recordName:
		d, name, word, host := s.dirs[r.Uint()], r.text(), r.Uint(), r.Uint()
		if r.Bad || d == nil {
			return false
		}
		e := nameAmong(d.names, name)
		if e == nil {
			return false
		}
		e.word.Store(word &^ nameGone) // it is looked at again
		number, _, _ := e.get()
		s.giveLocked(number, host)
		return true
	case recordInode:
		number, host := r.Uint(), r.Uint()
		x := r.inode(number)
		x.version = uint32(r.Uint())
		kind := r.Uint()
		if x.copied = kind != noCopy; kind == smallCopy {
			x.sum = uint32(r.Uint())
		}
		if r.Bad || kind > smallCopy {
			return false
		}
		s.giveLocked(number, host)
		if !x.copied || s.hasCopy(number, &x, kind == smallCopy) {
			s.log.hold(&x, s.log.end)
			s.fixed[number] = &x
		}
		return true
	}
	return false
}

// giveLocked notes that a number is given. mu is held.
func (s *sourceStore) giveLocked(number, host uint64) {
	s.given.Add(number)
	if host != 0 {
		s.bound[number] = host
	}
}

func (s *sourceStore) replayDir(r *recordReader) bool {
	number, up, name, dev, out := r.Uint(), r.Uint(), r.text(), r.Uint(), r.Uint()
	x := r.inode(number)
	if r.Bad || up == 0 && number != rootIno || up != 0 && s.dirs[up] == nil || s.dirs[number] != nil {
		return false
	}
	s.log.hold(&x, s.log.end)
	d := s.addDirLocked(s.dirs[up], name, number, dev, x)
	if d.listed = out == 1; d.listed {
		s.leftOut.Add(1)
	}
	return true
}

func (s *sourceStore) replayNames(r *recordReader) bool {
	d, n := s.dirs[r.Uint()], r.Uint()
	if r.Bad || d == nil || d.listed || n > uint64(len(r.Rest)) {
		return false
	}
	names := make([]sourceName, n)
	subdirs := uint32(0)
	for i := range names {
		e := &names[i]
		e.name = r.text()
		number, typ, host := r.Uint(), uint32(r.Uint()), r.Uint()
		if r.Bad || number > maxSourceIno || i > 0 && e.name <= names[i-1].name {
			return false
		}
		e.set(number, typ)
		if typ == unix.S_IFDIR {
			subdirs++
		} else if s.given.Contains(number) {
			s.shared.Add(number)
		}
		s.giveLocked(number, host)
	}
	d.names, d.subdirs, d.listed = names, subdirs, true
	return true
}

// hasCopy reports whether the copy of a file is there, with all its data: after a power failure it need not be.
func (s *sourceStore) hasCopy(number uint64, x *sourceInode, summed bool) bool {
	fd, err := openat(s.copies, copyName(number), unix.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Size) != x.attr.Size {
		return false
	}
	switch {
	case summed:
		sum, err := sumOf(fd, x.attr.Size)
		return err == nil && sum == x.sum
	case x.attr.Size <= maxSummed: // by an older version: one that is a hole is made anew
		extents, err := hostExtents(fd)
		return err == nil && (len(extents) > 0 || x.attr.Size == 0)
	}
	blocks, err := sourceBlocks(fd, x.attr.Size)
	return err == nil && blocks == x.attr.Blocks
}

// sumOf is the CRC-32C of a small copy.
func sumOf(fd int, size uint64) (uint32, error) {
	if size > maxSummed {
		return 0, nil
	}
	data := make([]byte, size)
	_, err := preadFull(fd, data, 0)
	return crc32.Checksum(data, castagnoli), err
}
