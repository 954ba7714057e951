package daemon

import (
	"testing"
	"time"
)

// SetWaits shortens for a test how long the daemon waits for slow clients. No daemon runs when it is called, nor when the
// test has ended.
func SetWaits(t testing.TB, header, body, answer time.Duration) {
	h, b, a := headerWait, bodyWait, answerWait
	headerWait, bodyWait, answerWait = header, body, answer
	t.Cleanup(func() { headerWait, bodyWait, answerWait = h, b, a })
}
