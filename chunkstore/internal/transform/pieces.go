package transform

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sort"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/goflate"
	"snapfs/internal/varint"
	"snapfs/internal/zdeflate"
)

// Run is a stretch of a file that is stored as other bytes.
type Run struct {
	Codec  Codec
	Len    int64   // bytes of the file
	Pieces *Pieces // of codec Deflate, else nil
	Debug  bool    // a debug section: what is stored is not a file elsewhere
}

// Pieces tells how a run of codec Deflate is made: a deflate stream, of which every piece can be made from its own
// contents, what lies around them, and little more. Immutable.
type Pieces struct {
	enc    encoder // bare
	head   []byte  // of the run, before the stream
	foot   []byte  // of the run, behind the stream
	prefix []byte  // contents of the stream before the run's inner bytes
	list   []part
	len    int64 // of the run
	inner  int64 // bytes stored
}

// PieceCost is the memory of a piece, in bytes.
const PieceCost = 32

// part is a piece: some blocks of a deflate stream.
type part struct {
	off     int64 // in the run; the first byte may have bits of the piece before
	at      int64 // in the contents
	context int64 // bytes of contents before it that the encoder has to see
	units   byte  // what the context is stored as
	lead    byte  // those bits, and a 1 above them
}

// Bounds of pieces.
const (
	minPieced  = 256 << 10             // shorter contents are not divided
	pieceSize  = 64 << 10              // of contents; the blocks that reach it are a piece
	fastSize   = 2 * goflate.FastBlock // pieceSize of Go's level 1, which is fast
	leastPiece = 16 << 10              // no shorter ones but the last are read
	mostPiece  = 2 << 20               // of contents, nor longer ones
	mostHead   = 2 << 10               // bytes before and behind a stream, and of the prefix
	// contextUnit is what contexts are multiples of, but for those that begin with the stream.
	contextUnit = 32 << 10
	mostContext = 8 // units; Go's levels from 2 on see up to one more
	// mostJoined is how many pieces that cannot be made alone are made with one before them.
	mostJoined = 4
	// pieceWork bounds how many candidates for matches are looked at for a piece: some 20 ms.
	pieceWork = 4 << 20
)

// contexts are those that are tried, in units. Compressors that do not enter every position into their tables need more,
// because what they enter depends on what they found before.
var (
	lazyContexts   = []int64{1, 2, 4}
	greedyContexts = []int64{2, 4, 8}
	fastContexts   = []int64{3, 4, 6, 8}
)

// contextsOf lists the contexts that are tried with an encoder.
func contextsOf(e encoder) []int64 {
	const lastGreedy = 3
	switch {
	case e.fast():
		return fastContexts
	case e.Level <= lastGreedy:
		return greedyContexts
	default:
		return lazyContexts
	}
}

// fast reports whether an encoder is the one of Go's level 1, which is unlike the others.
func (e encoder) fast() bool { return e.golang && e.Level == goflate.BestSpeed }

// context is what a piece from at on sees of the contents before it.
func (e encoder) context(at, units int64) int64 {
	n := units * contextUnit
	if e.golang && !e.fast() {
		n += at % goflate.PieceAlign
	}
	return min(at, n)
}

// divide divides a stream, raw without its wrapper, into pieces. It returns nil if the encoder does not make the stream,
// or if that is not known because there are no pieces.
func divide(e encoder, raw, contents []byte) *Pieces {
	e.wrap = bare
	d := divider{e: e, raw: raw, contents: contents, left: 3*len(contents) + mostPiece}
	size := int64(pieceSize)
	if e.fast() {
		size = fastSize
	}
	p := part{lead: 1}
	for p.at < int64(len(contents)) {
		next, ok := d.piece(p, p.at+size, pieceWork/2)
		reached := p.at
		for joined := 0; !ok; joined++ {
			// It is made with the one before it.
			if len(d.list) == 0 || d.left < 0 || joined == mostJoined {
				return nil
			}
			p = d.list[len(d.list)-1]
			d.list = d.list[:len(d.list)-1]
			next, ok = d.piece(p, reached+size, pieceWork)
		}
		p = next
	}
	if p.off != int64(len(raw)) {
		return nil
	}
	return &Pieces{enc: e, list: d.list, len: int64(len(raw)), inner: int64(len(contents))}
}

// divider divides a stream.
type divider struct {
	e        encoder
	raw      []byte
	contents []byte
	list     []part
	left     int // bytes that may still be deflated
	usual    int // context that the piece before needed
	out      []byte
}

// piece appends a piece that begins like p and ends with the first block that ends at until or later, or that takes more
// than enough work. It returns the beginning of the next one.
func (d *divider) piece(p part, until int64, enough int) (next part, ok bool) {
	size := int64(len(d.contents))
	hi := min(size, p.at+mostPiece+zdeflate.Lookahead)
	contexts := contextsOf(d.e)
	for i := max(0, d.usual-1); i < len(contexts); i++ {
		n := contexts[i]
		p.units, p.context = byte(n), d.e.context(p.at, n)
		data := d.contents[p.at-p.context : hi]
		out, used, tail, err := d.e.piece(d.out[:0], data, p, until-p.at, hi == size, enough)
		d.out = out
		d.left -= int(p.context)/2 + used // of the context no codes are made
		end := p.at + int64(used)
		if err == nil && used <= mostPiece && (used >= leastPiece || end == size) && d.same(out, tail, p) {
			d.list = append(d.list, p)
			d.usual = i
			return part{off: p.off + int64(len(out)), at: end, lead: tail}, true
		}
		if p.context == p.at {
			break // there is no more
		}
	}
	return next, false
}

// same reports whether the stream has a piece's bytes and the bits behind them.
func (d *divider) same(out []byte, tail byte, p part) bool {
	rest := d.raw[p.off:]
	if !bytes.HasPrefix(rest, out) {
		return false
	}
	rest = rest[len(out):]
	n := bits.Len8(tail) - 1
	return n == 0 || len(rest) > 0 && rest[0]&(1<<n-1) == tail&^(1<<n)
}

// piece appends to dst the piece of a stream that begins like p, and ends with the first block that ends at until or
// later, or takes more than enough work. data begins with its context; it ends with the stream if last is set.
func (e encoder) piece(
	dst, data []byte, p part, until int64, last bool, enough int,
) (out []byte, used int, tail byte, err error) {
	if e.fast() {
		n := (until + goflate.FastBlock - 1) / goflate.FastBlock * goflate.FastBlock
		end := int64(len(data))
		if p.context+n < end || !last {
			end, last = p.context+n, false
		}
		if end > int64(len(data)) {
			return dst, 0, 0, zdeflate.ErrCut
		}
		out, tail = goflate.AppendFast(dst, data[:end], int(p.context), p.lead, last)
		return out, int(end - p.context), tail, nil
	}
	if e.golang {
		g := goflate.Piece{
			Level: e.Level, Data: data, Context: int(p.context), Last: last,
			Until: int(until), Lead: p.lead, Work: pieceWork, Enough: enough,
		}
		return g.Append(dst) //nolint:wrapcheck // the caller drops it
	}
	z := zdeflate.Piece{
		Params: e.Params, Data: data, Offset: int(p.at - p.context), Context: int(p.context), Last: last,
		Until: int(until), Lead: p.lead, Work: pieceWork, Enough: enough,
	}
	return z.Append(dst) //nolint:wrapcheck // the caller drops it
}

// wrapped puts head before and foot behind the stream.
func (p *Pieces) wrapped(head, foot []byte) {
	p.head, p.foot = slices.Concat(head, p.head), slices.Concat(p.foot, foot)
	p.len += int64(len(head) + len(foot))
	for i := range p.list[1:] {
		p.list[1+i].off += int64(len(head))
	}
}

// within gives the pieces of a run with head before the stream, which stores the contents behind prefix. It returns nil
// if that is no run.
func (p *Pieces) within(head, prefix []byte) *Pieces {
	if p == nil {
		return nil
	}
	q := *p
	q.list = slices.Clone(p.list)
	q.wrapped(head, nil)
	q.prefix = slices.Clone(prefix)
	q.inner -= int64(len(prefix))
	if !q.fits() {
		return nil
	}
	return &q
}

func (p *Pieces) fits() bool {
	return max(len(p.head), len(p.foot), len(p.prefix)) <= mostHead && Deflate.Fits(p.len, p.inner)
}

// Count is the number of pieces.
func (p *Pieces) Count() int { return len(p.list) }

// Find is the index of the piece that has byte off of the run.
func (p *Pieces) Find(off int64) int {
	return sort.Search(len(p.list), func(i int) bool { return p.list[i].off > off }) - 1
}

// Span gives the first byte of a piece in the run, and the first one behind it.
func (p *Pieces) Span(i int) (off, end int64) {
	if i+1 < len(p.list) {
		return p.list[i].off, p.list[i+1].off
	}
	return p.list[i].off, p.len
}

// contents gives the range of the contents that belong to a piece.
func (p *Pieces) contents(i int) (at, end int64) {
	if i+1 < len(p.list) {
		return p.list[i].at, p.list[i+1].at
	}
	return p.list[i].at, p.inner + int64(len(p.prefix))
}

// Needs gives the range of the run's inner bytes that a piece is made of.
func (p *Pieces) Needs(i int) (lo, hi int64) {
	at, end := p.contents(i)
	lo = at - p.list[i].context - int64(len(p.prefix))
	hi = end + zdeflate.Lookahead - int64(len(p.prefix))
	return max(0, lo), min(p.inner, max(0, hi))
}

// Make makes a piece of the range of inner bytes that Needs gives. Its errors are of class corrupt.Err.
func (p *Pieces) Make(i int, inner []byte) ([]byte, error) {
	at, end := p.contents(i)
	off, last := p.list[i].off, i+1 == len(p.list)
	next := p.len
	if !last {
		next = p.list[i+1].off
	}
	lo := at - p.list[i].context
	data := inner
	if n := int64(len(p.prefix)); lo < n {
		data = slices.Concat(p.prefix[lo:], inner)
	}
	until := end - at
	if last {
		until = math.MaxInt32
	}
	out := make([]byte, 0, next-off+goflate.Beyond)
	if i == 0 {
		out = append(out, p.head...)
	}
	all := lo+int64(len(data)) == p.inner+int64(len(p.prefix))
	out, used, tail, err := p.enc.piece(out, data, p.list[i], until, all, pieceWork)
	if last {
		out = append(out, p.foot...)
	}
	if err != nil || int64(used) != end-at || int64(len(out)) != next-off || !last && tail != p.list[i+1].lead {
		return nil, corrupt.Errorf("piece %d of a stream gives %d of %d bytes", i, len(out), next-off)
	}
	return out, nil
}

// make reports whether each piece is made of what its readers have.
func (p *Pieces) make(raw, inner []byte) bool {
	for i := range p.list {
		lo, hi := p.Needs(i)
		off, end := p.Span(i)
		if out, err := p.Make(i, inner[lo:hi]); err != nil || !bytes.Equal(out, raw[off:end]) {
			return false
		}
	}
	return true
}

// Append appends the pieces as ParsePieces reads them.
func (p *Pieces) Append(b []byte) []byte {
	b = p.enc.append(b)
	for _, v := range [][]byte{p.head, p.foot, p.prefix} {
		b = binary.AppendUvarint(b, uint64(len(v)))
		b = append(b, v...)
	}
	b = binary.AppendUvarint(b, uint64(len(p.list)-1))
	for i, q := range p.list[1:] {
		b = binary.AppendUvarint(b, uint64((q.at-p.list[i].at)/p.enc.unit()))
		b = binary.AppendUvarint(b, uint64(q.off-p.list[i].off))
		b = append(b, q.lead, q.units)
	}
	return b
}

// unit is what the contents of pieces but the last are multiples of.
func (e encoder) unit() int64 {
	if e.fast() {
		return goflate.FastBlock
	}
	return 1
}

// ParsePieces reads the pieces of a run of n bytes that is made of inner bytes. It returns nil if they are malformed.
func ParsePieces(b *varint.Parser, n, inner int64) *Pieces {
	e, err := parseEncoder(b.Byte(), b.Byte())
	p := &Pieces{enc: e, len: n, inner: inner}
	for _, v := range []*[]byte{&p.head, &p.foot, &p.prefix} {
		*v = slices.Clone(b.Bytes(b.Count(mostHead)))
	}
	size := inner + int64(len(p.prefix))
	count := b.Count(uint64(size / leastPiece))
	if err != nil || e.wrap != bare || b.Bad {
		return nil
	}
	p.list = append(make([]part, 0, 1+min(count, len(b.Rest))), part{lead: 1})
	for last := p.list[0]; count > 0; count-- {
		at := int64(b.Count(mostPiece)) * e.unit()
		off := int64(b.Count(2 * mostPiece))
		q := part{off: last.off + off, at: last.at + at, lead: b.Byte()}
		q.units = b.Byte()
		q.context = e.context(q.at, int64(q.units))
		if b.Bad || at < leastPiece || at > mostPiece || off == 0 || q.lead == 0 || q.units > mostContext || q.at >= size {
			return nil
		}
		p.list = append(p.list, q)
		last = q
	}
	last := p.list[len(p.list)-1]
	rest := n - int64(len(p.foot)) - last.off
	if first := p.list[min(1, len(p.list)-1)]; len(p.list) > 1 && first.off < int64(len(p.head)) {
		return nil
	}
	if rest <= 0 || rest > 2*mostPiece || size-last.at > mostPiece {
		return nil
	}
	return p
}
