package client

import (
	"errors"
	"io"
	"net/http"

	"snapfs/sandbox/api/wire"
)

// takeRaw takes data that comes as it is, and gives the last line of the answer, which comes after it. The error is that of
// the connection, io.EOF if there is none, or a writeError.
func takeRaw(resp *http.Response, to io.Writer) (last string, err error) {
	room := make([]byte, rawPiece)
	for err == nil {
		var n int
		n, err = resp.Body.Read(room)
		if n > 0 && to != nil {
			if _, err := to.Write(room[:n]); err != nil {
				return "", writeError{err}
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	return resp.Trailer.Get(wire.ResultHeader), io.EOF
}

// rawPiece is how much of such data is taken at a time, in bytes.
const rawPiece = 256 << 10

// writeError is an error of whoever takes data.
type writeError struct{ error }

// failing is a Reader that has an error only.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
