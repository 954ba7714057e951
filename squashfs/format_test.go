package squashfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// pull returns what rawInode.decode asks for.
func pull(b []byte) func(int) ([]byte, error) {
	r := bytes.NewReader(b)
	return func(n int) ([]byte, error) {
		p := make([]byte, n)
		_, err := io.ReadFull(r, p)
		return p, err
	}
}

func TestStructureSizes(t *testing.T) {
	if got := len((&superblock{blockSize: 1 << 17}).encode()); got != superblockSize || HeaderSize != superblockSize {
		t.Errorf("superblock of %d bytes, want %d", got, superblockSize)
	}
	for typ, want := range map[uint16]int{
		1: 32, 2: 32, 3: 24 + 3, 4: 24, 5: 24, 6: 20, 7: 20,
		8: 40, 9: 56, 10: 24 + 3 + 4, 11: 28, 12: 28, 13: 24, 14: 24,
	} {
		if got := len((&rawInode{typ: typ, target: []byte("abc")}).append(nil)); got != want {
			t.Errorf("inode of type %d has %d bytes, want %d", typ, got, want)
		}
	}
	for name, s := range map[string]struct{ got, want int }{
		"directory header": {len(dirHeader{count: 1}.append(nil)), dirHeaderSize},
		"directory entry":  {len(dirEntry{name: "ab"}.append(nil)), dirEntrySize + 2},
		"directory index":  {len(dirIndex{name: "ab"}.append(nil)), dirIndexSize + 2},
		"fragment entry":   {len(fragmentEntry{}.append(nil)), fragmentEntrySize},
		"xattr table":      {len(xattrTable{}.append(nil)), xattrTableSize},
		"xattr id":         {len(xattrID{}.append(nil)), xattrIDSize},
		"xattr key":        {len(appendXattrKey(nil, 0, "ab")), xattrKeySize + 2},
		"xattr value":      {len(appendXattrValue(nil, []byte("ab"))), xattrValueSize + 2},
	} {
		if s.got != s.want {
			t.Errorf("%s has %d bytes, want %d", name, s.got, s.want)
		}
	}
}

func TestSuperblockRoundTrip(t *testing.T) {
	want := superblock{
		inodes: 1, mtime: 2, blockSize: 1 << 17, fragments: 4, compressor: 6, flags: 0x40, ids: 7, root: 8,
		bytesUsed: 9, idTable: 10, xattrTable: noTable, inodeTable: 12, dirTable: 13, fragTable: 14, exportTable: 15,
	}
	var got superblock
	if err := got.decode(want.encode()); err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	for name, spoil := range map[string]func(b []byte){
		"magic":      func(b []byte) { b[0]++ },
		"major":      func(b []byte) { b[28]++ },
		"minor":      func(b []byte) { b[30]++ },
		"block size": func(b []byte) { b[12]++ },
		"block log":  func(b []byte) { b[22]++ },
	} {
		b := want.encode()
		spoil(b)
		if err := got.decode(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: error %v, want ErrCorrupt", name, err)
		}
	}
	if err := got.decode(want.encode()[:superblockSize-1]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("short: error %v, want ErrCorrupt", err)
	}
}

func TestInodeRoundTrip(t *testing.T) {
	for _, n := range []rawInode{
		{typ: typeDir, start: 1, size: 60000, offset: 8000, parent: 4},
		{typ: typeDir + extendedType, start: 1, size: 1 << 31, offset: 8000, parent: 4, indexes: 9},
		{typ: typeFile, start: 1 << 31, size: 1 << 31, fragment: 4, offset: 77},
		{typ: typeFile + extendedType, start: 1 << 40, size: 1 << 41, sparse: 5, fragment: noFragment},
		{typ: typeSymlink, size: 3, target: []byte("abc")},
		{typ: typeSymlink + extendedType, size: 3, target: []byte("abc")},
		{typ: typeBlockDev, rdev: 0x801},
		{typ: typeCharDev + extendedType, rdev: 0x801},
		{typ: typeFifo},
		{typ: typeSocket + extendedType},
	} {
		n.mode, n.uid, n.gid, n.mtime, n.number = 0o4755, 1, 2, 3, 4
		n.nlink, n.xattr = 2, noXattr
		if n.typ == typeFile {
			n.nlink = 1
		}
		if n.basic() != typeFile {
			n.fragment = noFragment
		}
		if n.typ > extendedType {
			n.xattr = 6
		}
		t.Run(fmt.Sprint(n.typ), func(t *testing.T) {
			b := n.append(nil)
			var got rawInode
			if err := got.decode(pull(b)); err != nil || !reflect.DeepEqual(got, n) {
				t.Fatalf("got %+v, %v, want %+v", got, err, n)
			}
			if err := got.decode(pull(b[:len(b)-1])); err == nil {
				t.Fatal("a short inode was read")
			}
		})
	}
	var got rawInode
	for _, typ := range []uint16{0, 15, 65535} {
		if err := got.decode(pull((&rawInode{typ: typ}).append(nil))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("type %d: error %v, want ErrCorrupt", typ, err)
		}
	}
}

func TestDevice(t *testing.T) {
	for _, c := range []struct {
		major, minor uint32
		want         uint32
		ok           bool
	}{
		{0, 0, 0, true},
		{8, 1, 0x801, true},
		{259, 300, 0x1<<20 | 259<<8 | 44, true},
		{4095, 1<<20 - 1, 0xffffffff, true},
		{4096, 0, 0x100000, false},
	} {
		got, ok := encodeDev(unix.Mkdev(c.major, c.minor))
		if ok != c.ok || got != c.want {
			t.Errorf("encodeDev(%d, %d) = %#x, %v, want %#x, %v", c.major, c.minor, got, ok, c.want, c.ok)
		}
		if back := decodeDev(got); ok && back != unix.Mkdev(c.major, c.minor) {
			t.Errorf("decodeDev(%#x) = %#x", got, back)
		}
	}
}
