package statehttp

import (
	"fmt"
	"io"
	"time"

	"snapfs/sandbox/api"
)

// A large body has its place while it comes: it must come at slowest bytes per second, but for the first time.
const (
	slowest   = 256 << 10
	slowStart = 30 * time.Second
)

// steady reads a body until it comes too slowly.
type steady struct {
	from  io.Reader
	begun time.Time
	read  int64
}

// Read implements io.Reader.
func (s *steady) Read(p []byte) (int, error) {
	if time.Since(s.begun) > slowStart+time.Duration(s.read/slowest)*time.Second {
		return 0, fmt.Errorf("%w: the body comes too slowly: less than %d bytes per second", api.ErrInvalid, slowest)
	}
	n, err := s.from.Read(p)
	s.read += int64(n)
	return n, err
}
