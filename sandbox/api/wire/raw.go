package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
)

// A call that gives the contents of a file (CallGetFile, CallRead) sends them as they are to a client that asks for
// RawType in the header Accept, if there are any. The last line of the answer, with the result or the error, comes in the
// trailer ResultHeader then: without one, the answer was cut off.
const (
	RawType      = "application/octet-stream"
	ResultHeader = "Snapfs-Result"
)

// RequestHeader has the request of CallPutFile, in JSON: the body of the HTTP request is that of the file.
const RequestHeader = "Snapfs-Request"

// MaxRequestHeader is how long the request in that header may be, and MaxResultHeader the result in its own.
const (
	MaxRequestHeader = 14 << 10
	MaxResultHeader  = 56 << 10
)

// maxMessage bounds the message of an error in a header, in bytes.
const maxMessage = 4 << 10

// HeaderJSON is a value in JSON as headers have it: its texts are in ASCII, what is not is escaped.
func HeaderJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, c := range string(text) {
		switch {
		case c < 0x80:
			out.WriteRune(c)
		case c > 0xffff:
			a, b := utf16.EncodeRune(c)
			fmt.Fprintf(&out, `\u%04x\u%04x`, a, b)
		default:
			fmt.Fprintf(&out, `\u%04x`, c)
		}
	}
	return out.String(), nil
}

// Trailer is the value of ResultHeader for the last line of an answer.
func Trailer(f Frame) (string, error) {
	if f.Error != nil && len(f.Error.Message) > maxMessage {
		e := *f.Error
		e.Message = strings.ToValidUTF8(e.Message[:maxMessage], "")
		f.Error = &e
	}
	return HeaderJSON(f)
}
