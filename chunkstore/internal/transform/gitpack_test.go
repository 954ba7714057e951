package transform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/testseed"
)

// gitPack makes a repository with a history of a few files, and gives its only pack, written with options of git
// pack-objects, and the files' last contents.
func gitPack(t testing.TB, options ...string) (pack []byte, files [][]byte) {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, nil, "init", "-q")
	for i := range 20 {
		files = append(files, sample.Prose(int64(i), 400+i*i*50))
	}
	for commit := range 5 {
		for i, f := range files {
			files[i] = sample.Edited(int64(commit*100+i), f, 2)
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d.txt", i)), files[i], 0o600))
		}
		git(t, dir, nil, "add", ".")
		git(t, dir, nil, "commit", "-q", "-m", fmt.Sprint("commit ", commit))
	}
	objects := git(t, dir, nil, "rev-list", "--objects", "--all")
	pack = []byte(git(t, dir, []byte(objects), append([]string{"pack-objects", "-q", "--stdout"}, options...)...))
	return pack, files
}

// TestPack looks into packs that git has written.
func TestPack(t *testing.T) {
	rnd := rand.New(rand.NewSource(int64(testseed.Of(t))))
	for _, options := range [][]string{
		{"--delta-base-offset"}, {"--no-delta-base-offset"}, {"--window=0"}, {"--compression=1"}, {"--compression=9"},
	} {
		pack, files := gitPack(t, options...)
		runs := splitRuns(t, pack, whole)
		require.Equal(t, runs, splitRuns(t, pack, func() int { return rnd.Intn(30_000) }))
		covered := int64(0)
		bodies := map[string]bool{}
		for _, r := range runs {
			require.Equal(t, Recipe, r.codec)
			covered += r.out
			for _, b := range r.parts[1:] {
				bodies[string(b)] = true
			}
		}
		require.Greater(t, covered, int64(len(pack)*95/100), "options %v", options)
		last := 0
		for _, f := range files {
			if bodies[string(f)] {
				last++
			}
		}
		require.Greater(t, last, len(files)*3/4, "git keeps most of the newest files whole")
	}
	pack, _ := gitPack(t)
	splitRuns(t, pack[:len(pack)/2], whole)
	for range 5 {
		bad := bytes.Clone(pack)
		bad[rnd.Intn(len(bad))] ^= 1 << rnd.Intn(8)
		splitRuns(t, bad, whole)
	}
}

// TestNotPack checks that what only looks like a pack is left as it is.
func TestNotPack(t *testing.T) {
	data := sample.Prose(1, 1000)
	object := func(kind byte, size int, stream []byte) []byte {
		b := []byte{kind<<4 | byte(size&15)}
		for size >>= 4; size > 0; size >>= 7 {
			b[len(b)-1] |= 0x80
			b = append(b, byte(size&0x7f))
		}
		return append(b, stream...)
	}
	pack := func(version, count uint32, objects ...[]byte) []byte {
		b := binary.BigEndian.AppendUint32([]byte(packMagic), version)
		b = append(binary.BigEndian.AppendUint32(b, count), bytes.Join(objects, nil)...)
		return append(b, make([]byte, 20)...)
	}
	stream := zlibStream(t, data, 6)
	good := object(packBlob, len(data), stream)
	require.Len(t, splitRuns(t, pack(2, 1, good), whole), 1)
	require.Len(t, splitRuns(t, pack(2, 1<<32-1, good), whole), 1, "more objects than there are")
	for name, file := range map[string][]byte{
		"version":      pack(4, 1, good),
		"no objects":   pack(2, 0, good),
		"type 0":       pack(2, 1, object(0, len(data), stream)),
		"type 5":       pack(2, 1, object(5, len(data), stream)),
		"short claim":  pack(2, 1, object(packBlob, len(data)-1, stream)),
		"long claim":   pack(2, 1, object(packBlob, len(data)+1, stream)),
		"huge claim":   pack(2, 1, object(packBlob, 1<<40, stream)),
		"endless size": pack(2, 1, bytes.Repeat([]byte{0xff}, 500)),
		"endless base": pack(2, 1, append([]byte{packOffDelta << 4}, bytes.Repeat([]byte{0xff}, 500)...)),
		"bomb":         pack(2, 1, object(packBlob, 4<<20, zlibStream(t, make([]byte, 4<<20), 6))),
		"header":       pack(2, 1)[:13],
	} {
		require.Empty(t, splitRuns(t, file, whole), name)
	}
}
