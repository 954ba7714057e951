package squashfs

import (
	"encoding/binary"
	"io"

	"golang.org/x/sys/unix"
)

// markEvery is after how many words of a block list the position and the data offset are remembered. A random read then
// adds up no more words than that, and a list of any length takes little memory.
const markEvery = 256

// blockMark is where word i*markEvery of a block list is, and where that block's data is.
type blockMark struct {
	list position
	data int64
}

// blockWalk iterates over a file's block list.
type blockWalk struct {
	c    cursor
	data int64 // where the next block's data is
}

// next returns the next block: where it is stored, in how many bytes (0: a block of zeros), and how.
func (w *blockWalk) next() (off int64, stored int, word uint32, err error) {
	b, err := w.c.take(4)
	if err != nil {
		return 0, 0, 0, err
	}
	word = binary.LittleEndian.Uint32(b)
	stored, _ = dataHeader(word)
	off = w.data
	if im := w.c.im; stored > int(im.sb.blockSize) || stored > 0 &&
		(off < superblockSize || off+int64(stored) > im.inodes.start) {
		return 0, 0, 0, corrupt(w.c.at, "data block of %d bytes at %d, outside the data area or too long", stored, off)
	}
	w.data += int64(stored)
	return off, stored, word, nil
}

// skip passes over n blocks.
func (w *blockWalk) skip(n uint64) error {
	for ; n > 0; n-- {
		if _, _, _, err := w.next(); err != nil {
			return err
		}
	}
	return nil
}

// walk starts at block i of the list. It stores marks on its way, which other goroutines then use.
func (n *Inode) walk(i uint64) (blockWalk, error) {
	marks := n.blocks.p.Load()
	if marks == nil && i < markEvery {
		w := blockWalk{data: int64(n.raw.start)}
		var err error
		if w.c, err = n.im.cursor(n.im.inodes, n.rest); err != nil {
			return w, err
		}
		return w, w.skip(i)
	}
	if marks == nil {
		marks = &[]blockMark{{n.rest, int64(n.raw.start)}}
		n.blocks.p.CompareAndSwap(nil, marks)
	}
	m := min(i/markEvery, uint64(len(*marks)-1))
	w := blockWalk{data: (*marks)[m].data}
	var err error
	if w.c, err = n.im.cursor(n.im.inodes, (*marks)[m].list); err != nil {
		return w, err
	}
	more := (*marks)[:len(*marks):len(*marks)] // others read them: the first append copies
	for at := m * markEvery; at < i; at++ {
		if _, _, _, err := w.next(); err != nil {
			return w, err
		}
		if (at+1)%markEvery == 0 && (at+1)/markEvery == uint64(len(more)) {
			more = append(more, blockMark{w.c.position(), w.data})
		}
	}
	if len(more) > len(*marks) {
		n.remember(marks, more)
	}
	return w, nil
}

// remember replaces the marks by a longer list, unless another goroutine was faster.
func (n *Inode) remember(old *[]blockMark, marks []blockMark) { n.blocks.p.CompareAndSwap(old, &marks) }

// ReadAt reads file contents; holes are zeros. It returns io.EOF as io.ReaderAt does, unix.EISDIR for a directory and
// unix.EINVAL for other inodes without contents. Contiguous uncompressed blocks are read into p by a single read of the
// image.
func (n *Inode) ReadAt(p []byte, off int64) (int, error) {
	switch t := n.raw.basic(); {
	case t == typeDir:
		return 0, unix.EISDIR
	case t != typeFile || off < 0:
		return 0, unix.EINVAL
	case len(p) == 0:
		return 0, nil
	case off >= n.attr.Size:
		return 0, io.EOF
	}
	var eof error
	if rest := n.attr.Size - off; int64(len(p)) > rest {
		p, eof = p[:rest], io.EOF
	}
	done, err := n.read(p, off)
	if err != nil {
		return done, err
	}
	return done, eof
}

// read fills p, which lies within the file.
func (n *Inode) read(p []byte, off int64) (int, error) {
	im, bs := n.im, uint64(n.im.sb.blockSize)
	blocks := n.raw.blocks(im.sb.blockSize)
	i, within := uint64(off)/bs, int(uint64(off)%bs)
	if i == blocks {
		return n.readTail(p, within)
	}
	w, err := n.walk(i)
	if err != nil {
		return 0, err
	}
	var run plainRun
	done := 0
	for ; done < len(p) && i < blocks; i++ {
		whole := int(min(bs, uint64(n.attr.Size)-i*bs)) // of the unpacked block
		at, stored, word, err := w.next()
		if err != nil {
			return run.start, err
		}
		q := p[done:min(len(p), done+whole-within)]
		if _, compressed := dataHeader(word); stored > 0 && !compressed {
			if stored != whole {
				return run.start, corrupt(at, "data block of %d bytes, want %d", stored, whole)
			}
			if err := run.extend(im.r, p, at+int64(within), done, len(q)); err != nil {
				return run.start, err
			}
		} else {
			if err := run.flush(im.r, p, done); err != nil {
				return run.start, err
			}
			if err := n.readBlock(q, at, stored, word, whole, within); err != nil {
				return done, err
			}
			run.start = done + len(q)
		}
		done += len(q)
		within = 0
	}
	if err := run.flush(im.r, p, done); err != nil {
		return run.start, err
	}
	if done < len(p) {
		m, err := n.readTail(p[done:], within)
		return done + m, err
	}
	return done, nil
}

// plainRun collects contiguous bytes of the image that go to contiguous bytes of a buffer.
type plainRun struct {
	at    int64 // in the image
	start int   // in the buffer: all before is done
	n     int
}

// extend adds n bytes at off for position to of the buffer. If they do not continue what was collected, it reads that
// first.
func (r *plainRun) extend(from io.ReaderAt, p []byte, off int64, to, n int) error {
	if r.n > 0 && r.at+int64(r.n) != off {
		if err := r.flush(from, p, to); err != nil {
			return err
		}
	}
	if r.n == 0 {
		r.at, r.start = off, to
	}
	r.n += n
	return nil
}

// flush reads what was collected. Afterwards everything before position to is done.
func (r *plainRun) flush(from io.ReaderAt, p []byte, to int) error {
	if r.n > 0 {
		if err := readFull(from, p[r.start:r.start+r.n], r.at); err != nil {
			return err
		}
	}
	r.start, r.n = to, 0
	return nil
}

// readBlock copies bytes of a block of zeros or of a compressed block, starting at within.
func (n *Inode) readBlock(q []byte, at int64, stored int, word uint32, whole, within int) error {
	if stored == 0 {
		clear(q)
		return nil
	}
	im := n.im
	if len(q) == whole {
		// Readers of whole blocks in order read each once: unpack into their buffer and leave the cache to others.
		if data, ok := im.cache.peek(cacheKey{im.id, at, word}); ok && len(data) == whole {
			copy(q, data)
			return nil
		}
		return im.unpackInto(q, at, stored)
	}
	data, err := im.dataBlock(at, word, whole)
	if err != nil {
		return err
	}
	if len(data) != whole {
		return corrupt(at, "data block unpacks to %d bytes, want %d", len(data), whole)
	}
	copy(q, data[within:])
	return nil
}

// readTail copies bytes of the file's part of its fragment.
func (n *Inode) readTail(p []byte, within int) (int, error) {
	im := n.im
	f, err := im.fragment(n.raw.fragment)
	if err != nil {
		return 0, err
	}
	stored, compressed := dataHeader(f.size)
	used := im.sb.inodeTable // where the data ends; may be less than a block
	if stored == 0 || stored > int(im.sb.blockSize) || f.start < superblockSize || f.start > used ||
		uint64(stored) > used-f.start {
		return 0, corrupt(im.fragments.at, "fragment %d of %d bytes at %d", n.raw.fragment, stored, f.start)
	}
	from := int(n.raw.offset) + within
	if !compressed {
		if from+len(p) > stored {
			return 0, corrupt(int64(f.start), "fragment of %d bytes, want %d", stored, from+len(p))
		}
		return len(p), readFull(im.r, p, int64(f.start)+int64(from))
	}
	data, err := im.dataBlock(int64(f.start), f.size, int(im.sb.blockSize))
	if err != nil {
		return 0, err
	}
	if from+len(p) > len(data) {
		return 0, corrupt(int64(f.start), "fragment of %d bytes, want %d", len(data), from+len(p))
	}
	return copy(p, data[from:]), nil
}

// dataBlock returns a compressed block of data or tails through the cache, at most limit bytes.
func (im *Image) dataBlock(at int64, word uint32, limit int) ([]byte, error) {
	e, owner := im.cache.acquire(cacheKey{im.id, at, word})
	if owner {
		data, err := im.loadData(at, word, limit)
		im.cache.settle(e, data, 0, err)
	}
	return e.data, e.err
}

func (im *Image) loadData(at int64, word uint32, limit int) ([]byte, error) {
	stored, compressed := dataHeader(word)
	buf := takeScratch(max(stored, 2))
	defer putScratch(buf)
	src := (*buf)[:stored]
	if err := readFull(im.r, src, at); err != nil {
		return nil, err
	}
	return im.unpackBlock(at, src, compressed, limit)
}

// unpackInto unpacks a compressed block that must fill q.
func (im *Image) unpackInto(q []byte, at int64, stored int) error {
	buf := takeScratch(max(stored, 2))
	defer putScratch(buf)
	src := (*buf)[:stored]
	if err := readFull(im.r, src, at); err != nil {
		return err
	}
	n, err := im.unpack(q, src)
	if err != nil {
		return &CorruptError{Off: at, Reason: "cannot unpack block", cause: err}
	}
	if n != len(q) {
		return corrupt(at, "data block unpacks to %d bytes, want %d", n, len(q))
	}
	return nil
}
