package e2e

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
	"snapfs/internal/twin"
	"snapfs/sandbox"
)

// imager is another program that makes images, as a script that makes one of the directory $1 at $2; $3 is the size of
// a block.
type imager struct {
	script  string
	options []string // each by chance
	kinds   []string // of compression
}

var imagers = []imager{
	{
		`mksquashfs "$1" "$2" -noappend -quiet -no-progress -b "$3" -comp "$4" "${@:5}"`,
		[]string{
			"-noI", "-noD", "-noF", "-noX", "-noId", "-no-fragments",
			"-always-use-fragments", "-no-duplicates", "-no-exports", "-no-sparse", "-nopad",
		},
		[]string{"gzip", "xz", "zstd", "lz4", "lzo"},
	},
	{`gensquashfs -q -f -k -x -D "$1" -b "$3" -c "$4" "${@:5}" "$2"`, []string{"-e", "-T"}, []string{"gzip", "xz", "zstd", "lz4"}},
	{
		`tar -C "$1" --xattrs --xattrs-include='*' --sort=name -cf - . 2>/dev/null | tar2sqfs -q -f -b "$3" -c "$4" "${@:5}" "$2"`,
		[]string{"-e", "-T"},
		[]string{"gzip", "xz", "zstd", "lz4"},
	},
}

// make makes an image of a directory, with some of the options.
func (m imager) make(h *home, rng *rand.Rand, dir, image string) {
	h.t.Helper()
	args := []string{dir, image, itoa(4096 << rng.IntN(9)), m.kinds[rng.IntN(len(m.kinds))]}
	for _, o := range m.options {
		if rng.IntN(4) == 0 {
			args = append(args, o)
		}
	}
	h.t.Logf("%.12s %q", m.script, args[2:])
	shell(h.t, soon, h.tmp, m.script, args...)
}

// TestTwinForeign works on images that other programs made of random trees.
func TestTwinForeign(t *testing.T) {
	seed := testseed.Of(t)
	rng := newRand(seed)
	h := newHome(t)
	var pairs []*pair
	for i := range rounds(3, 6) {
		name := "ws" + itoa(i)
		dir := plainTree(h, name+"-tree", seed+uint64(i), 300+rng.IntN(600))
		shell(t, soon, dir, `find . -type s -delete; setfacl -R -P -b -k . ; find . -depth -exec touch -h -d @1000000000 {} +`) // tar has no sockets, no image ACLs
		image := h.path(name + ".sqsh")
		imagers[(i+rng.IntN(2)*rng.IntN(3))%len(imagers)].make(h, rng, dir, image)
		// What is in the image, by the kernel; programs differ in what they take.
		plain := h.makeDir(name + "-plain-of-image")
		shell(t, soon, h.tmp, `cp "$1" padded; truncate -s %4096 padded; mkdir loop && mount -t squashfs -o loop,ro padded loop; trap 'umount loop; rmdir loop' EXIT; rsync -aHAXx --numeric-ids --specials --devices loop/ "$2/"`, image, plain)
		p := newPair(h, name, image, plain, twin.Config{Seed: seed + uint64(i) + 1000})
		same(t, name, walk(t, plain), walk(t, p.mount), treewalk.Options{IgnoreExtents: true, IgnoreRoot: true})
		p.unique()
		pairs = append(pairs, p)
	}
	for range rounds(2, 5) {
		together(t, pairs, 150, func() { h.ok("snapshot", pairs[0].name) })
		for _, p := range pairs {
			p.compare()
		}
	}
	for _, p := range pairs {
		id := h.ok("snapshot", p.name, "--wait", "stored")
		p.reopened(func() { h.ok("umount", p.name); p.name = h.ok("restore", id) })
		p.end()
	}
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)
}

// TestForeignNumbers has images in which inodes have each other's numbers, or the same: numbers say nothing about which
// names are one file, and who takes such an image shows what is in it.
func TestForeignNumbers(t *testing.T) {
	seed := testseed.Of(t)
	rng := newRand(seed)
	h := newHome(t)
	taken := 0
	for i := range rounds(2, 8) {
		name := "ws" + itoa(i)
		dir := plainTree(h, name+"-tree", seed+uint64(i), 400)
		image := h.path(name + ".sqsh")
		shell(t, soon, h.tmp, `mksquashfs "$1" "$2" -noappend -quiet -no-progress -noI -no-exports`, dir, image)
		data, err := os.ReadFile(image)
		require.NoError(t, err)
		renumber(data, rng, i%2 == 0)
		require.NoError(t, os.WriteFile(image, data, 0o644))
		if r := h.run("create", name, "--from", image); r.code != 0 {
			require.Equal(t, 6, r.code, "SNAPFS_SEED=%d: %s", seed, r.err)
			continue
		}
		h.ok("destroy", name)
		taken++
		p := newPair(h, name, image, dir, twin.Config{Seed: seed + uint64(i) + 1000})
		for range 2 {
			p.actor.Steps(200)
			p.compare()
			p.reopened(func() { h.ok("snapshot", name); h.ok("umount", name) })
		}
		p.end()
	}
	t.Logf("%d images were taken", taken)
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)
}

// renumber changes the numbers of inodes in an image whose inodes are not compressed: some get each other's or, with
// equal, the same.
func renumber(image []byte, rng *rand.Rand, equal bool) {
	var numbers []int // offsets
	table := inodes(image)
	for at := 0; at+16 <= len(table.data); {
		numbers = append(numbers, at+12)
		at += table.size(at)
	}
	number := func(at int) uint32 { return binary.LittleEndian.Uint32(table.data[at:]) }
	for range 1 + rng.IntN(len(numbers)) {
		a, b := numbers[rng.IntN(len(numbers))], numbers[rng.IntN(len(numbers))]
		was := number(a)
		binary.LittleEndian.PutUint32(table.data[a:], number(b))
		if !equal {
			binary.LittleEndian.PutUint32(table.data[b:], was)
		}
	}
	table.store(image)
}

// inodeTable is the inode table of an image, without the headers of its blocks.
type inodeTable struct {
	data   []byte
	blocks [][2]int // offset and length in the image
	log    int      // of the size of a block of data
}

func inodes(image []byte) inodeTable {
	t := inodeTable{log: int(binary.LittleEndian.Uint16(image[22:]))}
	start, end := int(binary.LittleEndian.Uint64(image[64:])), int(binary.LittleEndian.Uint64(image[72:]))
	for at := start; at < end; {
		n := int(binary.LittleEndian.Uint16(image[at:]) &^ 0x8000)
		t.blocks = append(t.blocks, [2]int{at + 2, n})
		t.data = append(t.data, image[at+2:at+2+n]...)
		at += 2 + n
	}
	return t
}

func (t inodeTable) store(image []byte) {
	data := t.data
	for _, b := range t.blocks {
		copy(image[b[0]:], data[:b[1]])
		data = data[b[1]:]
	}
}

// size is how long the inode at an offset is.
func (t inodeTable) size(at int) int {
	u16 := func(off int) int { return int(binary.LittleEndian.Uint16(t.data[at+off:])) }
	u32 := func(off int) int { return int(binary.LittleEndian.Uint32(t.data[at+off:])) }
	blocks := func(size, fragment int) int {
		if fragment != 0xffffffff {
			return size >> t.log
		}
		return (size + 1<<t.log - 1) >> t.log
	}
	switch u16(0) {
	case 1:
		return 32
	case 2:
		return 32 + 4*blocks(u32(28), u32(20))
	case 3:
		return 24 + u32(20)
	case 4, 5:
		return 24
	case 8: // a directory with an index: start, block and length of a name, and the name
		n := 40
		for range u16(32) {
			n += 12 + u32(n+8) + 1
		}
		return n
	case 9:
		return 56 + 4*blocks(int(binary.LittleEndian.Uint64(t.data[at+24:])), u32(44))
	case 10:
		return 24 + u32(20) + 4
	case 11, 12:
		return 28
	case 13, 14:
		return 24
	}
	return 20 // fifos and sockets
}
