package sandbox

import (
	"strings"
	"testing"
)

// TestLastLines: what an event has of a log is why it panicked, or else the newest lines.
func TestLastLines(t *testing.T) {
	const title = "; last log lines: "
	for _, c := range []struct {
		lines []string
		most  int
		want  string
	}{
		{nil, 100, ""},
		{[]string{"a", "b"}, 100, title + "a | b"},
		{[]string{strings.Repeat("a", 100), "b", "c"}, 50, title + "b | c"},
		{[]string{"a", "panic: one", "goroutine 1", "fatal error: two", "", "goroutine 2"}, 100, title + "fatal error: two | | goroutine 2"},
		{[]string{"panic: " + strings.Repeat("a", 100), "b"}, 50, title + "panic: " + strings.Repeat("a", 50-len(title)-10) + "..."},
	} {
		if got := lastLines(c.lines, c.most); got != c.want {
			t.Errorf("%q: got %q, want %q", c.lines, got, c.want)
		}
	}
}
