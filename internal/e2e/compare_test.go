package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompare shows attempts beside each other.
func TestCompare(t *testing.T) {
	h := newHome(t)
	shell(t, soon, h.tmp, `mkdir from; cd from; git init -q; seq 20 > both; seq 20 > text; echo x > one; echo gone > gone; printf '\0' > bin; echo m > mode
		mkdir d; echo in > d/in; echo r > renamed; printf 'raw\n' > "$(printf 'r\377w')"; echo t > touched`)
	h.ok("create", "app", "--from", h.path("from"))
	h.ok("snapshot", "app", "--name", "start")
	for name, script := range map[string]string{
		"one":   `sed -i 's/^3$/three/' both text; echo same > new; rm gone; printf '\0\0' > bin; chmod +x mode; mv renamed d/renamed; echo 1 >> r*w; touch touched; git add -A; seq 5 > top`,
		"two":   `sed -i 's/^18$/eighteen/' both; sed -i 's/^3$/drei/' text; echo same > new; rm gone; rm -r d; echo d > d; chmod +x mode; echo 1 >> r*w`,
		"three": `echo y >> one; echo more > new`,
	} {
		h.ok("branch", "app:start", h.path("m-"+name), "--name", name)
		shell(t, soon, h.path("m-"+name), script)
	}
	h.ok("snapshot", "three", "--name", "done")
	require.Equal(t, strings.TrimPrefix(`
ATTEMPT     ADDED  CHANGED  DELETED  LINES  BYTES  CONFLICTS
one         3      5        2        +9 -3  21 B   3
two         2      4        2        +5 -4  10 B   3
three:done  1      1        0        +2 -0  7 B    1

FILE       one    two    three:done  CONFLICT
bin        M      -      -           -
both       +1 -1  +1 -1  -           -
d          -      A +1   -           one/two: directory/file
d/in       -      D      -           -
d/renamed  A      -      -           -
gone       D      same   -           -
mode       M      same   -           -
new        A +1   same   A +1        one/three:done: added/added, two/three:done: added/added
one        -      -      +1 -0       -
renamed    D      -      -           -
"r\xffw"   +1 -0  same   -           -
text       +1 -1  +1 -1  -           one/two: both changed
top        A +5   -      -           -`, "\n"), h.ok("compare", "one", "two", "three:done"))
	var got struct {
		Attempts []map[string]any
		Files    []struct {
			Path      string
			Attempts  []map[string]any
			Conflicts []struct{ A, B, Kind string }
		}
		Total int
	}
	require.NoError(t, json.Unmarshal([]byte(h.ok("compare", "one", "two", "--json", "--", "text", "new")), &got))
	require.Equal(t, 2, got.Total)
	require.Equal(t, "one", got.Files[0].Attempts[1]["same_as"])
	require.Equal(t, "both changed", got.Files[1].Conflicts[0].Kind)
	require.Contains(t, h.ok("compare", "one", "two", "--limit", "1"), "... and 11 more files (--limit)")
	h.ok("create", "apart")
	h.fails(3, "stem from nothing in common", "compare", "one", "apart")
	require.NotContains(t, h.ok("compare", "one", "apart", "--base", "app:start", "--stat"), "FILE")
	h.fails(2, "named twice", "compare", "one", "one")
}
