package dirapply

import (
	"context"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// content is a file with these bytes, or that cannot be read.
type content struct {
	threeway.File
	data string
	err  error
}

func (c content) Stat() layers.Attr {
	return layers.Attr{Mode: unix.S_IFREG, Size: uint64(len(c.data))}
}

func (c content) CopyTo(_ context.Context, w io.Writer) error {
	if c.err != nil {
		return c.err
	}
	_, err := io.WriteString(w, c.data)
	return err
}

// TestSameContents: what cannot be read is an error, whichever side it is, and not another content; what changes while it
// is read differs.
func TestSameContents(t *testing.T) {
	broken := errors.New("damaged")
	whole, other := content{data: "text"}, content{data: "Text"}
	bad, moving := content{data: "text", err: broken}, content{data: "text", err: ErrChanged}
	for _, test := range []struct {
		x, y threeway.File
		same bool
		err  error
	}{
		{whole, whole, true, nil},
		{whole, other, false, nil},
		{bad, whole, false, broken},
		{whole, bad, false, broken},
		{moving, whole, false, nil},
		{whole, moving, false, nil},
	} {
		same, err := SameContents(t.Context(), test.x, test.y)
		if same != test.same || !errors.Is(err, test.err) {
			t.Errorf("%v and %v: %v, %v", test.x, test.y, same, err)
		}
	}
}
