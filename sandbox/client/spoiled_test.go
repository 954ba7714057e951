package client

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestSpoiled: what is not UTF-8 is found in its JSON form, and nothing else is; a regular expression says the same.
func TestSpoiled(t *testing.T) {
	naive := regexp.MustCompile(`(^|[^\\])(\\\\)*\\ufffd`)
	parts := []string{"\xff", "\ufffd", `\`, `\ufffd`, "ufffd", "a", `"`, "\n", "<", "é", "\xc3"}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var b strings.Builder
		for range rng.IntN(6) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		body, err := json.Marshal(map[string]string{"path": b.String()})
		if err != nil {
			t.Fatal(err)
		}
		want := !utf8.ValidString(b.String())
		if got := spoiled(body); got != want || naive.Match(body) != want {
			t.Fatalf("%q as %s: got %v, the expression %v, want %v", b.String(), body, got, naive.Match(body), want)
		}
	}
}
