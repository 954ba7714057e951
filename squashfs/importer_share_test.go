package squashfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// counted is an image whose bytes read are counted, those of the data area apart.
type counted struct {
	*bytes.Reader
	dataEnd int64
	data    int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	if off >= superblockSize && off < c.dataEnd {
		c.data += int64(len(p))
	}
	return c.Reader.ReadAt(p, off)
}

// counting opens an image for import.
func counting(t *testing.T, img []byte) (*Image, *counted) {
	t.Helper()
	r := &counted{Reader: bytes.NewReader(img), dataEnd: int64(binary.LittleEndian.Uint64(img[sbInodeTable:]))}
	im, err := Open(r, int64(len(img)), Options{CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return im, r
}

// sharing is an image of many files that have the same blocks or the same tail, and of as many that have the same
// attributes.
func sharing(files int) *model {
	m := soundModel()
	m.pairs = appendXattrValue(appendXattrKey(m.pairs, 0, "large"), bytes.Repeat([]byte("x"), 60000))
	at := len(m.pairs) - 60000 - xattrValueSize - len("large") - xattrKeySize
	m.sets = append(m.sets, xattrID{ref: refAt(at), count: 1, size: 60012})
	for i := range files {
		from := []int{mFile, mTail}[i%2]
		n := modelInode{rawInode: m.inodes[from].rawInode, words: m.inodes[from].words}
		n.number, n.nlink = uint32(len(m.inodes)+1), 1
		if from == mFile {
			n.xattr = 2
		}
		m.inodes = append(m.inodes, n)
		big := m.entriesOf(mBig)
		*big = append(*big, modelEntry{name: fmt.Sprintf("shared-%06d", i), inode: len(m.inodes) - 1})
	}
	m.inodes[mRoot].parent = uint32(len(m.inodes) + 1)
	return m
}

// TestImportShared: what files of an image share is read and stored once, however many they are.
func TestImportShared(t *testing.T) {
	const files = 2000
	img := sharing(files).build()
	for _, v := range violations(t, img) {
		t.Fatalf("the image is unsound: %+v", v)
	}
	im, read := counting(t, img)
	src := ImageSource(im).(*imageSource)
	out := &keeper{b: make([]byte, HeaderSize)}
	info, err := WriteStore(t.Context(), out, src, StoreOptions{Share: true})
	if err != nil {
		t.Fatal(err)
	}
	if info.Files < files {
		t.Fatalf("%d files", info.Files)
	}
	if most := 2 * read.dataEnd; read.data > most {
		t.Errorf("%d bytes of data are read, want at most %d", read.data, most)
	}
	if left, most := src.guard.xattrs, setsFloor+setsFactor*int64(im.sb.bytesUsed)-1<<17; left < most {
		t.Errorf("attributes are read until %d bytes are left, want %d", left, most)
	}
	for _, v := range violations(t, out.b) {
		t.Fatalf("what is stored is unsound: %+v", v)
	}
	if size := binary.LittleEndian.Uint64(out.b[sbInodeTable:]); size > uint64(8*read.dataEnd) {
		t.Errorf("%d bytes of contents are stored of an image with %d", size, read.dataEnd)
	}
	again, err := Open(bytes.NewReader(out.b), int64(len(out.b)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < files; i += 97 {
		name := fmt.Sprintf("big/shared-%06d", i)
		want, err := im.FS().(imageFS).ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := again.FS().(imageFS).ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	n, err := again.resolve("big/shared-000000", true)
	if err != nil {
		t.Fatal(err)
	}
	if x, err := n.Xattrs(); err != nil || len(x) != 1 || len(x[0].Value) != 60000 {
		t.Errorf("%d attributes, %v", len(x), err)
	}
}

// forgetful is a source that does not say what is the same.
type forgetful struct{ Source }

func (f forgetful) Entry(ctx context.Context, dir *Entry, name string) (*Entry, error) {
	e, err := f.Source.Entry(ctx, dir, name)
	if err == nil && e.Shared.ID != 0 {
		e.Xattrs, err = e.Attributes()
		e.Shared = XattrSet{}
	}
	return e, err
}

func (f forgetful) Open(ctx context.Context, e *Entry) (File, error) {
	file, err := f.Source.Open(ctx, e)
	return struct{ File }{file}, err
}

// growing is a WriterAt.
type growing struct{ b []byte }

func (m *growing) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p) - len(m.b); need > 0 {
		m.b = append(m.b, make([]byte, need)...)
	}
	return copy(m.b[off:], p), nil
}

// TestShipShared: an export is the same bytes whether its source knows what files share or not, and reads that once if
// it does.
func TestShipShared(t *testing.T) {
	img := sharing(400).build()
	var images [2]growing
	var reads [2]int64
	for i := range images {
		im, read := counting(t, img)
		src := ImageSource(im)
		if i == 1 {
			src = forgetful{src}
		}
		if _, err := WriteShip(t.Context(), &images[i], src,
			ShipOptions{BlockSize: minBlockSize, Level: 1}); err != nil {
			t.Fatal(err)
		}
		reads[i] = read.data
	}
	if !bytes.Equal(images[0].b, images[1].b) {
		t.Errorf("images of %d and %d bytes differ", len(images[0].b), len(images[1].b))
	}
	if reads[0] > 4*int64(len(img)) || reads[1] < 10*reads[0] {
		t.Errorf("%d bytes are read with what is known, %d without", reads[0], reads[1])
	}
}

// TestKnownContentsForgets bounds what is remembered of files.
func TestKnownContentsForgets(t *testing.T) {
	var k knownContents
	for i := range int64(3 * maxKnown / knownCost) {
		k.add(knownKey{size: i}, written{})
		if k.cost > maxKnown || len(k.files) > maxKnown/knownCost {
			t.Fatalf("%d files at a cost of %d", len(k.files), k.cost)
		}
	}
	files := len(k.files)
	k.add(knownKey{size: -1}, written{extents: make([]Extent, maxExtents)})
	if len(k.files) != files {
		t.Error("a file with very many extents is remembered")
	}
}

// TestImportXattrs refuses what no kernel would set.
func TestImportXattrs(t *testing.T) {
	le := binary.LittleEndian
	capability := func(magic uint32, size int) []byte {
		return append(le.AppendUint32(nil, magic), make([]byte, size-4)...)
	}
	acl := func(entries ...[3]uint32) []byte {
		b := le.AppendUint32(nil, aclVersion)
		for _, e := range entries {
			b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, uint16(e[0])), uint16(e[1])), e[2])
		}
		return b
	}
	owner, group, mask, others := [3]uint32{aclUserObj, 7, noID}, [3]uint32{aclGroupObj, 5, noID},
		[3]uint32{aclMask, 7, noID}, [3]uint32{aclOther, 0, noID}
	user, users := [3]uint32{aclUser, 6, 12}, [3]uint32{aclGroup, 4, 34}
	const caps, access, inherited = "security.capability", "system.posix_acl_access", "system.posix_acl_default"
	file, dir, link := uint32(unix.S_IFREG), uint32(unix.S_IFDIR), uint32(unix.S_IFLNK)
	for _, c := range []struct {
		mode  uint32
		name  string
		value []byte
		valid bool
	}{
		{file, caps, capability(capRevision1, 12), true},
		{file, caps, capability(capRevision2, 20), true},
		{file, caps, capability(capRevision2|capEffective, 20), true},
		{file, caps, capability(capRevision3|capEffective, 24), true},
		{file, caps, []byte{1, 2, 3}, false},
		{file, caps, nil, false},
		{file, caps, capability(capRevision2, 12), false},
		{file, caps, capability(capRevision2, 24), false},
		{file, caps, capability(capRevision3, 20), false},
		{file, caps, capability(capRevision2|2, 20), false},
		{file, caps, capability(0x04000000, 24), false},
		{file, caps, append(capability(capRevision3, 20), 255, 255, 255, 255), false},
		{file, access, acl(owner, group, others), true},
		{dir, inherited, acl(owner, user, group, users, mask, others), true},
		{file, access, acl(owner, group, mask, others), true},
		{file, inherited, acl(owner, group, others), false},
		{link, access, acl(owner, group, others), false},
		{file, access, nil, false},
		{file, access, acl(), false},
		{file, access, acl(owner, group, others)[:20], false},
		{file, access, append([]byte{3}, acl(owner, group, others)[1:]...), false},
		{file, access, acl(owner, group), false},
		{file, access, acl(owner, others), false},
		{file, access, acl(group, owner, others), false},
		{file, access, acl(owner, owner, group, others), false},
		{file, access, acl(owner, user, group, others), false},
		{file, access, acl(owner, group, users, others), false},
		{file, access, acl(owner, group, user, mask, others), false},
		{file, access, acl(owner, group, others, others), false},
		{file, access, acl(owner, [3]uint32{aclUser, 6, noID}, group, mask, others), false},
		{file, access, acl([3]uint32{aclUserObj, 8, 0}, group, others), false},
		{file, access, acl(owner, group, others, [3]uint32{0x40, 0, 0}), false},
		{file, "user.any", []byte{1, 2, 3}, true},
		{file, "", nil, false},
	} {
		if fault := xattrsFault(c.mode, []Xattr{{c.name, c.value}}); (fault == "") != c.valid {
			t.Errorf("%o %s %x: %q", c.mode, c.name, c.value, fault)
		}
	}
}

// TestImportAttributeSets imports images whose sets of attributes are not what Linux has.
func TestImportAttributeSets(t *testing.T) {
	set := func(list ...Xattr) func(m *model) {
		return func(m *model) {
			m.pairs = nil
			for _, x := range list {
				typ, rest, _ := splitXattr(x.Name)
				m.pairs = appendXattrValue(appendXattrKey(m.pairs, typ, rest), x.Value)
			}
			m.sets = []xattrID{{count: uint32(len(list))}}
			m.inodes[mFile].xattr = 0
		}
	}
	many := make([]Xattr, 300)
	for i := range many {
		many[i] = Xattr{fmt.Sprintf("user.%0240d", i), nil}
	}
	large := make([]Xattr, maxImportXattrs>>16+1)
	for i := range large {
		large[i] = Xattr{fmt.Sprint("user.", i), make([]byte, 1<<16)}
	}
	for name, c := range map[string]struct {
		change func(m *model)
		want   error
	}{
		"twice":      {set(Xattr{"user.a", nil}, Xattr{"user.b", nil}, Xattr{"user.a", []byte("x")}), ErrCorrupt},
		"capability": {set(Xattr{"security.capability", []byte{1, 2, 3}}), ErrCorrupt},
		"names":      {set(many...), ErrCorrupt},
		"values":     {set(large...), ErrLimit},
		"sound":      {set(many[:200]...), nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := soundModel()
			c.change(m)
			if _, err := imported(t.Context(), m.build()); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

// vast is an image file that is nearly all hole.
type vast struct {
	head, tail []byte
	tailAt     int64
	size       int64
}

func (v vast) ReadAt(p []byte, off int64) (int, error) {
	if off >= v.size {
		return 0, io.EOF
	}
	clear(p)
	if off < int64(len(v.head)) {
		copy(p, v.head[off:])
	}
	if end := off + int64(len(p)); end > v.tailAt && off < v.tailAt+int64(len(v.tail)) {
		copy(p[max(v.tailAt-off, 0):], v.tail[max(off-v.tailAt, 0):])
	}
	return len(p), nil
}

// TestImportClaims: what an image says of its tables is bounded before there is memory for them, however long the file
// is.
func TestImportClaims(t *testing.T) {
	const used = 64 << 30
	for name, c := range map[string]struct {
		inodes uint32
		ext    *extHeader
		want   string
	}{
		"inodes": {inodes: 1<<32 - 1, want: "take"},
		"extension pages": {inodes: 1000, want: "take", ext: &extHeader{
			length: 1 << 33, bytesUsed: used, inodes: 1000,
			columns: []extColumn{{id: extExtraBlob, width: 1, pageRows: 1, rows: 1 << 29, offset: 100}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sb := superblock{
				inodes: c.inodes, blockSize: minBlockSize, compressor: compressorGzip, ids: 1, bytesUsed: used, root: 0,
				inodeTable: superblockSize, dirTable: 1 << 20, idTable: 2 << 20, fragTable: noTable,
				exportTable: noTable, xattrTable: noTable,
			}
			v := vast{head: sb.encode(), tailAt: used, size: 1 << 40}
			if c.ext != nil {
				v.tail = c.ext.encode()
			}
			im, err := Open(v, v.size, Options{CacheBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			err = im.Complete()
			_, werr := WriteStore(t.Context(), &nowhere{}, ImageSource(im), StoreOptions{})
			for _, err := range []error{err, werr} {
				if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

// TestImportOverlappingExtras: records of the extension section that overlap are not read again and again.
func TestImportOverlappingExtras(t *testing.T) {
	im, _ := counting(t, soundModel().build())
	g := importer{im: im}
	if err := g.begin(); err != nil {
		t.Fatal(err)
	}
	g.extras = 10
	n, err := im.Inode(im.Root())
	if err != nil {
		t.Fatal(err)
	}
	blob := appendExtra(nil, &extra{xattrs: []Xattr{{"system.x", []byte("1234")}}})
	x := &extension{}
	for c, rows := range map[int]uint64{extExtraNumber: 1, extExtraOffset: 1, extExtraBlob: uint64(len(blob))} {
		x.columns[c].extColumn = extColumn{id: uint16(c), rows: rows}
	}
	x.columns[extExtraNumber].constant = int64(n.raw.number)
	x.columns[extExtraBlob].width, x.columns[extExtraBlob].pageRows = 1, extBlobPage
	slot := &x.cache[extExtraBlob%extCacheSlots]
	slot.Store(&extPage{column: extExtraBlob, data: slices.Clone(blob)})
	im.ext.p.Store(&x)
	_, err = g.extra(n)
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("error %v", err)
	}
}
