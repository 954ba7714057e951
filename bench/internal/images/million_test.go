package images

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// million is a made-up tree of 1,000 directories with 1,000 small files each.
type million struct{}

func (million) entry(name string, mode uint32, ino int, size int64) *squashfs.Entry {
	at := squashfs.Time{Sec: 1700000000 + int64(ino%5000), Nsec: uint32(ino * 7919 % 1e9)}
	return &squashfs.Entry{Name: name, Handle: ino, Attr: squashfs.Attr{
		Ino: uint64(ino), Mode: mode, Nlink: 1, Size: size, Mtime: at, Ctime: at, Btime: at,
	}}
}

func (m million) Root(context.Context) (*squashfs.Entry, error) {
	return m.entry("", unix.S_IFDIR|0o755, 1, 0), nil
}

func (m million) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("a-usual-name-%04d.go", i)
		if dir.Name == "" {
			names[i] = fmt.Sprintf("directory-%04d", i)
		}
	}
	return names, nil
}

func (m million) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	var i int
	if dir.Name == "" {
		_, err := fmt.Sscanf(name, "directory-%04d", &i)
		return m.entry(name, unix.S_IFDIR|0o755, i+2, 0), err
	}
	_, err := fmt.Sscanf(name, "a-usual-name-%04d.go", &i)
	ino := (int(dir.Attr.Ino)-1)*1000 + i + 1002
	return m.entry(name, unix.S_IFREG|0o644, ino, int64(8+i%64)), err
}

func (million) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	text := bytes.Repeat(strconv.AppendUint(nil, file.Attr.Ino, 10), 80)
	return smallFile{bytes.NewReader(text[:file.Attr.Size])}, nil
}

type smallFile struct{ *bytes.Reader }

func (f smallFile) Extents() ([]squashfs.Extent, error) {
	return []squashfs.Extent{{Len: f.Size()}}, nil
}
func (smallFile) Close() error { return nil }

// BenchmarkSquashfsMillion writes an image of 1,000,000 files in both forms and opens it. Metric rss-MiB is the
// largest resident set while writing, open-us the time from the image's file to the root directory's attributes.
func BenchmarkSquashfsMillion(b *testing.B) {
	for name, write := range map[string]func(f *os.File) (squashfs.Info, error){
		"store": func(f *os.File) (squashfs.Info, error) {
			sink := &fileSink{f, squashfs.HeaderSize}
			return squashfs.WriteStore(context.Background(), sink, million{}, squashfs.StoreOptions{})
		},
		"ship": func(f *os.File) (squashfs.Info, error) {
			opts := squashfs.ShipOptions{Compression: "zstd", Level: 3}
			return squashfs.WriteShip(context.Background(), f, million{}, opts)
		},
	} {
		b.Run(name, func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "image.sqsh"))
			fatal(b, err)
			defer f.Close()
			var info squashfs.Info
			for b.Loop() {
				fatal(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // forgets the peak
				info, err = write(f)
				fatal(b, err)
				b.ReportMetric(float64(peakRSS(b))/1024, "rss-MiB")
			}
			var open time.Duration
			for range 10 {
				start := time.Now()
				im, err := squashfs.Open(f, info.Size, squashfs.Options{})
				fatal(b, err)
				_, err = im.Inode(im.Root())
				fatal(b, err)
				open += time.Since(start)
			}
			b.ReportMetric(float64(open.Microseconds())/10, "open-us")
			b.ReportMetric(float64(info.Files), "files")
		})
	}
}

// peakRSS is VmHWM in KiB.
func peakRSS(b *testing.B) int {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	fatal(b, err)
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	n, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	fatal(b, err)
	return n
}

// fileSink writes the store form to a file.
type fileSink struct {
	f   *os.File
	off int64
}

func (s *fileSink) Write(p []byte) (int, error) {
	n, err := s.f.WriteAt(p, s.off)
	s.off += int64(n)
	return n, err
}

func (s *fileSink) Cut(squashfs.Cut) error { return nil }

func (s *fileSink) Header(p []byte) error {
	_, err := s.f.WriteAt(p, 0)
	return err
}

// BenchmarkPlainRead reads every file of the tree: what BenchmarkSquashfsStore cannot beat.
func BenchmarkPlainRead(b *testing.B) {
	buf := make([]byte, 1<<20)
	var data int64
	for b.Loop() {
		data = 0
		fatal(b, filepath.WalkDir(sourceTree(), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			if _, err := d.Info(); err != nil {
				return err
			}
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close() // only read
			for {
				n, err := f.Read(buf)
				data += int64(n)
				if err == io.EOF { //nolint:errorlint // os.File gives it as it is
					return nil
				}
				if err != nil {
					return err
				}
			}
		}))
	}
	b.SetBytes(data)
}
