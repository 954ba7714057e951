package twin

import "testing"

func TestTear(t *testing.T) {
	for _, test := range []struct {
		is, was, becomes string
		want             bool
	}{
		{"", "", "", true},
		{"old", "old", "new", true},
		{"new", "old", "new", true},
		{"ned", "old", "new", true},
		{"ne", "old", "new", true}, // cut off first
		{"nex", "old", "new", false},
		{"olw", "old", "new", false},
		{"newtail", "oldtail", "new", true},
		{"old+ad", "old", "old+added", true},
		{"old+xd", "old", "old+added", false},
		{"older", "old", "new", false},
	} {
		if got := tear([]byte(test.is), []byte(test.was), []byte(test.becomes)); got != test.want {
			t.Errorf("%q between %q and %q: %v", test.is, test.was, test.becomes, got)
		}
	}
}
