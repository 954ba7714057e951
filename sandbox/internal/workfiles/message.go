package workfiles

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// kind is that of a message.
type kind byte

const (
	order   kind = 'o'
	opened  kind = 'O'
	proceed kind = 'g'
	data    kind = 'd'
	end     kind = 'e'
	item    kind = 'i'
	ready   kind = 'y'
	result  kind = 'r'
	fault   kind = 'x'
)

// mostMessage bounds the contents of a message: the order of an edit has two texts, escaped in JSON.
const mostMessage = 16 << 20

// buffer is what a side of a call has in memory, in bytes, in each direction.
const buffer = 64 << 10

// writer writes messages. One goroutine at a time uses it.
type writer struct{ out *bufio.Writer }

func newWriter(w io.Writer) *writer { return &writer{bufio.NewWriterSize(w, buffer)} }

// send writes a message; flush sends what was written.
func (w *writer) send(k kind, contents []byte) error {
	if len(contents) > mostMessage {
		return fmt.Errorf("a message of %d bytes", len(contents))
	}
	var head [5]byte
	head[0] = byte(k)
	binary.LittleEndian.PutUint32(head[1:], uint32(len(contents)))
	if _, err := w.out.Write(head[:]); err != nil {
		return err
	}
	_, err := w.out.Write(contents)
	return err
}

// sendJSON is send of a value.
func (w *writer) sendJSON(k kind, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.send(k, text)
}

func (w *writer) flush() error { return w.out.Flush() }

// reader reads messages. One goroutine at a time uses it.
type reader struct {
	in   *bufio.Reader
	room []byte
}

func newReader(r io.Reader) *reader { return &reader{in: bufio.NewReaderSize(r, buffer)} }

// next reads a message, which is valid until the next call.
func (r *reader) next() (kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.LittleEndian.Uint32(head[1:]))
	if n > mostMessage {
		return 0, nil, fmt.Errorf("a message of %d bytes", n)
	}
	if cap(r.room) < n {
		r.room = make([]byte, n)
	}
	r.room = r.room[:n]
	_, err := io.ReadFull(r.in, r.room)
	return kind(head[0]), r.room, err
}
