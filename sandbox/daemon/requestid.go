package daemon

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// RequestIDHeader carries the id of a request, in it and in its answer.
const RequestIDHeader = "X-Request-Id"

// maxRequestID bounds an id that a client gives, in bytes.
const maxRequestID = 64

// requestID is the id that a client gives to a request, if it may be written anywhere, or else a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get(RequestIDHeader)
	strange := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	}
	if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, strange) {
		return uuid.NewString()
	}
	return id
}
