package wire

import (
	"errors"
	"testing"

	"snapfs/sandbox/api"
)

func TestSpoken(t *testing.T) {
	for _, test := range []struct {
		ours, theirs string
		common       int
	}{
		{"1-2", "1-2", 2},
		{"1-2", "1-9", 2},
		{"1-2", "2-9", 2},
		{"2-5", "1-3", 3},
		{"1-2", "3-4", 0},
		{"3-4", "1-2", 0},
		{"1-2", "", 1},
		{"2-3", "", 0},
		{"1-2", "2", 1},
		{"1-2", "4-2", 1},
		{"1-2", "0-2", 1},
	} {
		if got := ParseSpoken(test.ours).Common(ParseSpoken(test.theirs)); got != test.common {
			t.Errorf("%q and %q have %d in common, want %d", test.ours, test.theirs, got, test.common)
		}
	}
	if ParseSpoken(Speaks.String()) != Speaks {
		t.Errorf("%s is read as %s", Speaks, ParseSpoken(Speaks.String()))
	}
	if !errors.Is(&VersionError{}, api.ErrUnavailable) {
		t.Error("a VersionError is in no class")
	}
}
