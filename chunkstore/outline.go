package chunkstore

import (
	"encoding/binary"
	"errors"

	"snapfs/chunkstore/internal/cdc"
	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/transform"
	"snapfs/internal/varint"
)

// An outline names the chunks of a part by their hashes, so that the part can be taken again without its bytes. It is
// the caller's to keep, and holds nothing: it is of use while the store has the chunks, whatever named them.
//
//	outline  version (1 byte), entries
//	entry    uvarint length of a chunk, its hash (20 bytes)
//	       | 0, codec (1 byte), uvarint length, uvarint inner, pieces if the codec has any: the last chunks, of inner
//	         bytes, are a transform run
const outlineVersion = 1

// maxOutline bounds an outline. A part with a longer one has none.
const maxOutline = 4 << 20

// outliner makes the outline of the part that is being taken.
type outliner struct {
	done func(outline []byte)
	out  []byte
}

func newOutliner(done func(outline []byte)) outliner {
	const short = 1 + 3 + hashLen // of one chunk
	return outliner{done: done, out: append(make([]byte, 0, short), outlineVersion)}
}

// chunk adds a chunk.
func (o *outliner) chunk(h hash, n int) {
	if o.done == nil {
		return
	}
	o.out = append(binary.AppendUvarint(o.out, uint64(n)), h[:]...)
	o.bound()
}

// leave makes the last chunks a run.
func (o *outliner) leave(t transformRun) {
	if o.done == nil {
		return
	}
	o.out = append(o.out, 0, byte(t.codec))
	o.out = binary.AppendUvarint(o.out, uint64(t.len))
	o.out = binary.AppendUvarint(o.out, uint64(t.inner))
	if t.codec == transform.Deflate {
		o.out = t.pieces.Append(o.out)
	}
	o.bound()
}

func (o *outliner) bound() {
	if len(o.out) > maxOutline {
		*o = outliner{}
	}
}

// end ends the part.
func (o *outliner) end() {
	if done := o.done; done != nil {
		done(o.out)
	}
	*o = outliner{}
}

// Outline has done called with the outline of the part that Hint has begun, once all of it is taken; not if that is too
// long. The calls are made one after the other, in the order of the parts, and before Commit writes anything. done owns
// the outline.
func (in *Ingest) Outline(done func(outline []byte)) error {
	if err := in.check(); err != nil {
		return err
	}
	in.err = in.pipe.add(step{kind: stepOutline, outlined: done}, nil)
	return in.err
}

// Known is a part whose chunks the store has. They stay until the ingest that has recalled them ends.
type Known struct {
	in    *Ingest
	steps []step
	size  int64
}

// Size is the length of the part.
func (k *Known) Size() int64 { return k.size }

// Recall finds the chunks of an outline; false if the store does not have all of them. Any number of goroutines may
// call it, beside the one that uses the ingest, until the ingest ends.
func (in *Ingest) Recall(outline []byte) (*Known, bool, error) {
	k := &Known{in: in}
	p := varint.Parser{Rest: outline}
	if p.Byte() != outlineVersion {
		return nil, false, nil
	}
	plain := int64(0) // bytes of chunks since the last run
	for len(p.Rest) > 0 {
		n := p.Count(cdc.MaxSize)
		if n > 0 {
			s := step{kind: stepKnown, len: n}
			copy(s.hash[:], p.Bytes(hashLen))
			if p.Bad {
				break
			}
			var ok bool
			var err error
			if s.num, ok, err = in.recall(s.hash, n); err != nil || !ok {
				return nil, false, err
			}
			k.steps = append(k.steps, s)
			k.size += int64(n)
			plain += int64(n)
			continue
		}
		t := transformRun{codec: transform.Codec(p.Byte())}
		t.len, t.inner = int64(p.Count(transform.MaxInflated)), int64(p.Count(transform.MaxInflated))
		if p.Bad || t.inner > plain || !t.codec.Fits(t.len, t.inner) {
			p.Bad = true
			break
		}
		if t.codec == transform.Deflate {
			if t.pieces = transform.ParsePieces(&p, t.len, t.inner); t.pieces == nil {
				p.Bad = true
				break
			}
		}
		k.steps = append(k.steps, step{kind: stepLeave, run: t})
		k.size += t.len - t.inner
		plain = 0
	}
	if p.Bad {
		return nil, false, corrupt.Errorf("outline of a part")
	}
	return k, true, nil
}

// recall finds a chunk of n bytes in the store, and pins it.
func (in *Ingest) recall(h hash, n int) (uint64, bool, error) {
	num, err := in.recalled(h)
	if errors.Is(err, ErrNotFound) {
		return 0, false, nil
	}
	if err != nil || !in.s.pins.use(in, num) {
		return 0, false, err
	}
	_, size, err := in.s.locate(num)
	if errors.Is(err, errNoChunk) {
		return 0, false, nil
	}
	return num, err == nil && size == n, err
}

// Again takes a known part of this ingest as all of the part that Hint has begun.
func (in *Ingest) Again(k *Known) error {
	if err := in.check(); err != nil {
		return err
	}
	if k.in != in {
		return errors.New("a part that another ingest has recalled")
	}
	for _, s := range k.steps {
		if in.err = in.pipe.add(s, nil); in.err != nil {
			return in.err
		}
	}
	return nil
}
