package secret

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestSecret(t *testing.T) {
	id := uuid.NewString()
	text, sum := New(id)
	got, again, err := Parse(text)
	if err != nil || got != id || again != sum || !sum.Is(again[:]) {
		t.Fatalf("%s: %s, %v", text, got, err)
	}
	if other, otherSum := New(id); other == text || sum.Is(otherSum[:]) || sum.Is(nil) {
		t.Error("two secrets are alike")
	}
	for _, bad := range []string{
		"", text[:len(text)-1], text + "A", strings.ToUpper(text), strings.Replace(text, "_", "-", 1),
		text[:len(text)-1] + "=", text[:len(Prefix)] + "g" + text[len(Prefix)+1:], strings.Repeat("x", length),
	} {
		if _, _, err := Parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		} else if strings.Contains(err.Error(), Prefix) {
			t.Errorf("%q is told: %v", bad, err)
		}
	}
}

// FuzzParse: whatever is taken is the one spelling of an id and a key.
func FuzzParse(f *testing.F) {
	text, _ := New(uuid.NewString())
	f.Add(text)
	f.Add(Prefix)
	f.Fuzz(func(t *testing.T, text string) {
		id, _, err := Parse(text)
		if err == nil && !strings.HasPrefix(text, Prefix+strings.ReplaceAll(id, "-", "")+"_") {
			t.Errorf("%q: id %q", text, id)
		}
	})
}
