package httpapi

import (
	"net/http/httptest"
	"testing"

	"snapfs/sandbox/daemon"
)

// TestLanes: what lasts is in no lane of what does not, whatever the sandbox is called.
func TestLanes(t *testing.T) {
	for _, id := range []string{"sb-1", "files", "files-1"} {
		for path, want := range map[string]daemon.Lane{
			"": daemon.ShortLane, "/files": daemon.LongLane, "/files/list": daemon.LongLane, "/files/archive": daemon.LongLane,
			"/files/stat": daemon.ShortLane, "/files/watch": daemon.FollowLane,
		} {
			if id == "files" && path == "" {
				continue // it looks like what it is not: a longer one
			}
			r := httptest.NewRequest("GET", "/api/v1/sandboxes/"+id+path, nil)
			if got := laneOf(r); got != want {
				t.Errorf("%s: lane %v, want %v", r.URL.Path, got, want)
			}
		}
	}
}
