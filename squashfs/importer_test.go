package squashfs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// nowhere is a Sink.
type nowhere struct{ bytes int64 }

func (s *nowhere) Write(p []byte) (int, error) { s.bytes += int64(len(p)); return len(p), nil }
func (s *nowhere) Cut(Cut) error               { return nil }
func (s *nowhere) Header([]byte) error         { return nil }

// imported stores an image's tree as it is stored that a workspace is made of.
func imported(ctx context.Context, img []byte) (Info, error) {
	im, err := Open(bytes.NewReader(img), int64(len(img)), Options{CacheBytes: 1 << 20})
	if err == nil {
		err = im.Complete()
	}
	if err != nil {
		return Info{}, err
	}
	return WriteStore(ctx, &nowhere{}, ImageSource(im), StoreOptions{})
}

// lenient lists the broken images that are taken all the same, since readers of all kinds agree on what is in them.
var lenient = map[string]string{
	"export-wrong":       "only NFS servers look there",
	"ext-magic":          "what another program left behind the image",
	"ext-nanoseconds":    "shows what plain squashfs has of the inode",
	"ext-page-table":     "the same",
	"ext-page":           "the same",
	"ext-version":        "a later version's: plain squashfs",
	"inode-nlink-0":      "link counts are recounted",
	"inode-nlink":        "the same",
	"inode-without-name": "it is not reachable",
	"sb-more-inodes":     "the same",
}

// TestImportBroken stores what is in each image of testdata/broken: refused, or what every reader sees.
func TestImportBroken(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(256 << 20))
	files, err := filepath.Glob(filepath.Join(brokenDir, "*.sqsh"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sqsh")
		t.Run(name, func(t *testing.T) {
			img, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = imported(ctx, img)
			sound := len(violations(t, img)) == 0
			switch {
			case err == nil && !sound && lenient[name] == "":
				t.Errorf("taken: %v", violations(t, img)[0])
			case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrLimit):
				t.Errorf("an error of another class: %v", err)
			case err != nil && sound:
				t.Errorf("a sound image is refused: %v", err)
			}
		})
	}
}
