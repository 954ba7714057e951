package testseed

import "testing"

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		text string
		long bool
		want uint64
	}{
		{"", false, usual},
		{"12", false, 12},
		{"12", true, 12},
		{"18446744073709551615", false, 1<<64 - 1},
	} {
		if got, err := choose(test.text, test.long); got != test.want || err != nil {
			t.Errorf("%q, long %v: got %d, %v, want %d", test.text, test.long, got, err, test.want)
		}
	}
	for _, bad := range []string{"-1", "1.5", "seven", "18446744073709551616"} {
		if got, err := choose(bad, false); err == nil {
			t.Errorf("%q: got %d", bad, got)
		}
	}
	for seen, i := map[uint64]bool{}, 0; len(seen) < 2; i++ { // equal ones in a row hardly happen
		seed, err := choose("", true)
		if seen[seed] = true; err != nil || i == 3 {
			t.Fatalf("long runs: always %v, %v", seen, err)
		}
	}
}
