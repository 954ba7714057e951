package transform

import "bytes"

// gzipMagic begins a gzip file (RFC 1952) of deflate streams.
const gzipMagic = "\x1f\x8b\x08"

// gzipFormat is that of gzip files of any number of members.
type gzipFormat struct{}

func (gzipFormat) next(b []byte, _ bool, g *guesser) (piece, verdict) {
	const fixed, footer, maxHead = 10, 8, 1 << 10
	if len(b) < fixed {
		return piece{}, more
	}
	if !bytes.HasPrefix(b, []byte(gzipMagic)) {
		return piece{}, stop
	}
	head := gzipHead(b)
	if head < 0 || head > maxHead {
		if len(b) > maxHead {
			return piece{}, stop
		}
		return piece{}, more
	}
	list := gzipList(b[8], b[9])
	inner, used, err := inflate(b[head:], -1)
	if err == nil && head+used+footer > len(b) {
		err = errShort
	}
	if err == errShort { //nolint:errorlint // never wrapped
		return piece{}, more
	}
	if err != nil {
		return piece{}, stop
	}
	used += footer
	e, parts, ok := g.find(list, gzipFooter, 15, b[head:head+used], inner)
	if !ok {
		return piece{skip: int64(head + used)}, found
	}
	return piece{skip: int64(head), raw: used, enc: e, inner: inner, parts: parts, file: true}, found
}

// gzipHead is the length of a member's header, of which b has the fixed part; -1 if it does not end in b.
func gzipHead(b []byte) int {
	const (
		crc     = 1 << 1
		extra   = 1 << 2
		name    = 1 << 3
		comment = 1 << 4
	)
	n := 10
	flags := b[3]
	if flags&extra != 0 {
		if len(b) < n+2 {
			return -1
		}
		n += 2 + int(b[n]) + int(b[n+1])<<8
	}
	for _, f := range []byte{name, comment} {
		if flags&f == 0 {
			continue
		}
		if n > len(b) {
			return -1
		}
		i := bytes.IndexByte(b[n:], 0)
		if i < 0 {
			return -1
		}
		n += i + 1
	}
	if flags&crc != 0 {
		n += 2
	}
	if n > len(b) {
		return -1
	}
	return n
}

// gzipList gives the encoders that the extra flags and the system of origin of a header allow.
func gzipList(flags, system byte) hint {
	const unknown = 255
	lists := [3]hint{gzipHint, gzipBest, gzipFast}
	if system == unknown {
		lists = [3]hint{goGzipHint, goGzipBest, goGzipFast}
	}
	switch flags {
	case 2:
		return lists[1]
	case 4:
		return lists[2]
	default:
		return lists[0]
	}
}
