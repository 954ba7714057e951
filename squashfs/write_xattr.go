package squashfs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"
)

// xattrWriter collects the sets of attributes; equal sets are stored once. For one goroutine.
type xattrWriter struct {
	pairs *metaWriter
	ids   *metaWriter
	known map[[16]byte]uint32 // hash of an encoded set to its index
	sets  map[uint64]uint32   // XattrSet.ID to the index of the set; those that squashfs holds as a whole
	buf   []byte
}

// addOf is add for the attributes of an entry.
func (w *xattrWriter) addOf(e *Entry) (id uint32, foreign []Xattr, err error) {
	if e.Shared.ID == 0 {
		return w.add(e.Xattrs)
	}
	if id, ok := w.sets[e.Shared.ID]; ok {
		return id, nil, nil
	}
	list, err := e.Attributes()
	if err != nil {
		return 0, nil, err
	}
	id, foreign, err = w.add(list)
	if err == nil && len(foreign) == 0 {
		w.sets[e.Shared.ID] = id
	}
	return id, foreign, err
}

// add returns the index of a set, or noXattr for none. Attributes that squashfs cannot hold are returned separately.
func (w *xattrWriter) add(all []Xattr) (id uint32, foreign []Xattr, err error) {
	if len(all) == 0 {
		return noXattr, nil, nil
	}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Xattr) int { return cmp.Compare(a.Name, b.Name) })
	w.buf = w.buf[:0]
	var count, size uint32
	budget := maxXattrBytes
	for i, x := range sorted {
		if i > 0 && x.Name == sorted[i-1].Name {
			return 0, nil, fmt.Errorf("attribute %q occurs twice", x.Name)
		}
		if len(x.Value) > maxXattrValue || len(x.Name) > maxXattrName {
			return 0, nil, fmt.Errorf("%w: attribute %q with a value of %d bytes", ErrLimit, x.Name, len(x.Value))
		}
		if budget -= len(x.Name) + len(x.Value) + entryOverhead; budget < 0 {
			return 0, nil, fmt.Errorf("%w: attributes of more than %d bytes", ErrLimit, maxXattrBytes)
		}
		typ, rest, ok := splitXattr(x.Name)
		if !ok {
			foreign = append(foreign, x)
			continue
		}
		if rest == "" {
			return 0, nil, fmt.Errorf("%q is no name for an attribute", x.Name)
		}
		w.buf = appendXattrKey(w.buf, typ, rest)
		w.buf = appendXattrValue(w.buf, x.Value)
		count++
		size += uint32(len(x.Name) + 1 + len(x.Value))
	}
	if count == 0 {
		return noXattr, foreign, nil
	}
	sum := blake3.Sum256(w.buf)
	key := [16]byte(sum[:16])
	if id, ok := w.known[key]; ok {
		return id, foreign, nil
	}
	ref := w.pairs.tell()
	if _, err := w.pairs.Write(w.buf); err != nil {
		return 0, nil, err
	}
	if _, err := w.ids.Write(xattrID{ref: ref, count: count, size: size}.append(nil)); err != nil {
		return 0, nil, err
	}
	id = uint32(len(w.known))
	w.known[key] = id
	return id, foreign, nil
}

// idTable maps owners to indices in the order of their first use. For one goroutine.
type idTable struct {
	index map[uint32]uint16
	ids   []uint32
}

func (t *idTable) add(id uint32) (uint16, error) {
	if i, ok := t.index[id]; ok {
		return i, nil
	}
	if len(t.ids) == maxIDs {
		return 0, fmt.Errorf("%w: more than %d owners and groups", ErrLimit, maxIDs)
	}
	i := uint16(len(t.ids))
	t.index[id] = i
	t.ids = append(t.ids, id)
	return i, nil
}
