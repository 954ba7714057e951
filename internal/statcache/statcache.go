package statcache

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/zeebo/blake3"
)

// Bounds; variables for tests.
var (
	MaxBytes int64 = 128 << 20
	MaxTotal int64 = 512 << 20
)

const (
	magic     = "snapfsC2"
	sumLen    = 32
	indexLen  = 16
	statLen   = 24                               // the times of a record
	frameLen  = len(magic) + sumLen + 8 + sumLen // of a file without records
	suffix    = ".seen"
	newSuffix = ".new"
)

// Key says whose import of which directory it is.
type Key struct {
	UID  uint32 // with whose rights the directory is read
	Dev  uint64 // the directory's device and inode
	Ino  uint64
	Path string // the directory's
	Part string // anything that tells apart imports of different parts of it
}

func (k Key) sum() [sumLen]byte {
	return blake3.Sum256(fmt.Appendf(nil, "%d %d %d %q %q", k.UID, k.Dev, k.Ino, k.Path, k.Part))
}

func (k Key) path(dir string) string {
	sum := k.sum()
	return filepath.Join(dir, hex.EncodeToString(sum[:16])+suffix)
}

// File is a file of the host. Times are nanoseconds since 1970; a birth time that is not known is 0.
type File struct {
	Ino                 uint64
	Ctime, Mtime, Btime int64
	Size                int64
}

// Reader has what an import noted.
type Reader struct {
	all   []byte
	index []byte
}

// Open reads what the last import of a key noted. A Reader without anything is given if there is nothing of use.
func Open(dir string, k Key) (*Reader, error) {
	path := k.path(dir)
	all, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Reader{}, nil
	}
	if err != nil {
		return &Reader{}, err
	}
	r, ok := parse(all, k.sum())
	if !ok {
		return &Reader{}, os.Remove(path)
	}
	now := time.Now()
	return r, os.Chtimes(path, now, now) // it is used
}

// readBounded reads a file that is not too long to be one of ours.
func readBounded(path string) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil || fi.Size() > maxFile() {
		return nil, err
	}
	all := make([]byte, fi.Size())
	_, err = io.ReadFull(f, all)
	return all, err
}

// maxFile is the longest file: no record is shorter than its place in the index is long.
func maxFile() int64 { return 2*MaxBytes + int64(frameLen) }

func parse(all []byte, key [sumLen]byte) (*Reader, bool) {
	n := len(all)
	if n < frameLen || string(all[:len(magic)]) != magic || !bytes.Equal(all[len(magic):][:sumLen], key[:]) {
		return nil, false
	}
	if sum := blake3.Sum256(all[:n-sumLen]); !bytes.Equal(sum[:], all[n-sumLen:]) {
		return nil, false
	}
	count := binary.LittleEndian.Uint64(all[n-sumLen-8:])
	if count > uint64(n-frameLen)/indexLen {
		return nil, false
	}
	end := n - sumLen - 8
	start := end - int(count)*indexLen
	return &Reader{all: all[:start], index: all[start:end]}, true
}

// Len is how many files have notes.
func (r *Reader) Len() int { return len(r.index) / indexLen }

// Find gives what was noted of a file that has not changed since. Any number of goroutines may call it. The note must
// not be changed.
func (r *Reader) Find(f File) (note []byte, ok bool) {
	n := len(r.index) / indexLen
	i := sort.Search(n, func(i int) bool { return binary.LittleEndian.Uint64(r.index[i*indexLen:]) >= f.Ino })
	if i == n || binary.LittleEndian.Uint64(r.index[i*indexLen:]) != f.Ino {
		return nil, false
	}
	at := binary.LittleEndian.Uint64(r.index[i*indexLen+8:])
	if at > uint64(len(r.all)) {
		return nil, false
	}
	rest := r.all[at:]
	if len(rest) < statLen {
		return nil, false
	}
	for k, want := range []int64{f.Ctime, f.Mtime, f.Btime} {
		if int64(binary.LittleEndian.Uint64(rest[k*8:])) != want {
			return nil, false
		}
	}
	rest = rest[statLen:]
	size, k := binary.Uvarint(rest)
	if k <= 0 || size != uint64(f.Size) {
		return nil, false
	}
	rest = rest[k:]
	length, k := binary.Uvarint(rest)
	if k <= 0 || length > uint64(len(rest)-k) {
		return nil, false
	}
	return rest[k:][:length:length], true
}

// Writer takes the notes of an import.
type Writer struct {
	dir   string
	to    string
	f     *os.File
	buf   *bufio.Writer
	sum   hash.Hash
	off   int64
	index []place
	rec   []byte
	err   error // the first one
}

type place struct{ ino, off uint64 }

// Create begins the file of a key. Commit or Abort must be called.
func Create(dir string, k Key) (*Writer, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	to := k.path(dir)
	f, err := os.CreateTemp(dir, filepath.Base(to)+".*"+newSuffix)
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, to: to, f: f, sum: blake3.New()}
	const bufferSize = 256 << 10
	w.buf = bufio.NewWriterSize(io.MultiWriter(f, w.sum), bufferSize)
	key := k.sum()
	w.write([]byte(magic))
	w.write(key[:])
	return w, nil
}

func (w *Writer) write(p []byte) {
	if w.err != nil {
		return
	}
	n, err := w.buf.Write(p)
	w.off += int64(n)
	w.err = err
}

// Note notes a file; of several notes of one inode, the last counts. When there is no room left it does nothing.
func (w *Writer) Note(f File, note []byte) {
	r := w.rec[:0]
	for _, v := range []int64{f.Ctime, f.Mtime, f.Btime} {
		r = binary.LittleEndian.AppendUint64(r, uint64(v))
	}
	r = binary.AppendUvarint(r, uint64(f.Size))
	r = binary.AppendUvarint(r, uint64(len(note)))
	r = append(r, note...)
	w.rec = r
	if w.off+int64(len(r)) > MaxBytes {
		return
	}
	w.index = append(w.index, place{f.Ino, uint64(w.off)})
	w.write(r)
}

// Commit puts the file in its place, and removes others if there are too many bytes of them.
func (w *Writer) Commit() error {
	slices.SortStableFunc(w.index, func(a, b place) int { return cmp.Compare(a.ino, b.ino) })
	kept := w.index[:0]
	for i, p := range w.index {
		if i+1 < len(w.index) && w.index[i+1].ino == p.ino {
			continue
		}
		kept = append(kept, p)
	}
	var b [indexLen]byte
	for _, p := range kept {
		binary.LittleEndian.PutUint64(b[:8], p.ino)
		binary.LittleEndian.PutUint64(b[8:], p.off)
		w.write(b[:])
	}
	w.write(binary.LittleEndian.AppendUint64(nil, uint64(len(kept))))
	err := w.err
	if err == nil {
		err = w.buf.Flush()
	}
	if err == nil {
		_, err = w.f.Write(w.sum.Sum(nil))
	}
	if err = errors.Join(err, w.f.Close()); err == nil {
		err = os.Rename(w.f.Name(), w.to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(w.f.Name()))
	}
	return trim(w.dir, filepath.Base(w.to))
}

// Len is how many files were noted.
func (w *Writer) Len() int { return len(w.index) }

// Abort drops the notes.
func (w *Writer) Abort() error { return errors.Join(w.f.Close(), os.Remove(w.f.Name())) }

// Sweep removes what writers left behind that a crash ended. No Writer may be at work.
func Sweep(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range list {
		if strings.HasSuffix(e.Name(), newSuffix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// trim removes the files that were not used for the longest time until the others, and keep, have room.
func trim(dir, keep string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	total := int64(0)
	for _, e := range list {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		fi, err := e.Info()
		if err != nil {
			continue // it was replaced or removed
		}
		total += fi.Size()
		if e.Name() != keep {
			files = append(files, fi)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, fi := range files {
		if total <= MaxTotal {
			break
		}
		if err := os.Remove(filepath.Join(dir, fi.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= fi.Size()
	}
	return nil
}
