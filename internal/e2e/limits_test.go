package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
	"snapfs/internal/twin"
	"snapfs/sandbox"
)

// TestTwinLimits gives the daemon few descriptors or little address space, as a container does, and has programs in one
// workspace hold more files and directories than that. Programs in another one, and the API, see nothing of it.
func TestTwinLimits(t *testing.T) {
	seed := testseed.Of(t)
	tests := []struct{ name, limit string }{
		{"256 descriptors", "-n 256"}, {"1024 descriptors", "-n 1024"}, {"address space", "-v 3000000"},
	}
	for _, test := range tests[:rounds(1, len(tests))] {
		t.Run(test.name, func(t *testing.T) {
			h := newHome(t)
			rng := newRand(seed)
			shell(t, soon, h.makeDir("large"), `truncate -s 8M $(seq -f large%g 0 $(($1-1)))`, itoa(crowdLarge))
			// Root may have as many as it likes, if it may raise limits.
			start(t, h, h.tmp, "bash", "-c", `ulimit -S `+test.limit+`; ulimit -H `+test.limit+`
				exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource "$1" serve >serve.log 2>&1`, "script", snapfs)
			for end := time.Now().Add(time.Minute); h.run("status").code != 0; time.Sleep(20 * time.Millisecond) {
				require.True(t, time.Now().Before(end), "no daemon: %s", h.read("serve.log"))
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("serve.log: %s", tail(h.read("serve.log")))
				}
			})
			pid := h.pid()
			other := newPair(h, "other", "", "", twin.Config{Seed: seed})
			h.ok("create", "greedy", "--from", h.path("large"))
			h.ok("mount", "greedy", h.makeDir("greedy"))
			for range rounds(1, 3) {
				c := startCrowd(t, "holders", h.path("greedy"), 800+rng.IntN(1200), rng.Uint64())
				c.more(100)
				other.actor.Steps(200)
				c.stalls()
				t.Logf("held: %d", c.done())
				other.actor.Steps(300)
				h.ok("snapshot", "other")
				h.ok("create", "fresh", "--from", h.makeDir("fresh"))
				h.ok("mount", "fresh", h.path("fresh"))
				shell(t, soon, h.path("fresh"), `for i in $(seq 50); do mkdir d$i; echo $i > d$i/f; done; test "$(cat d*/f | wc -l)" = 50`)
				h.ok("umount", "fresh")
				h.ok("destroy", "fresh")
				other.compare()
				h.ok("snapshot", "greedy")
				c.end()
				shell(t, soon, h.path("greedy"), `mkdir free; echo x > free/x; cat free/x; rm -r free`)
			}
			other.end()
			require.Equal(t, pid, h.pid(), "the daemon lives")
			require.Empty(t, decode[sandbox.CheckResult](h, "check").Problems)
			h.ok("stop")
		})
	}
}
