package catalog

import (
	"fmt"
	"testing"

	"snapfs/sandbox/api"
)

// TestTierOf grows a stack without branches and looks at how many forms it opens as.
func TestTierOf(t *testing.T) {
	base := Form{&Layer{ID: "base", State: api.Stored, Size: 1 << 40}, false}
	forms := []Form{base}
	most := 0
	for i := range 3000 {
		l := &Layer{ID: fmt.Sprint(i), Parent: forms[0].ID, State: api.Stored, Size: 4096}
		forms = append([]Form{{l, false}}, forms...)
		n := tierOf(forms)
		if n == 0 {
			most = max(most, len(forms))
			continue
		}
		tier := &Tier{Manifest: 1, Down: forms[n-1].Below()}
		for _, f := range forms[:n] {
			tier.Span += f.Span()
			tier.Size += f.size()
		}
		l.Tier = tier
		forms = append([]Form{{l, true}}, forms[n:]...)
		if tierLevel(forms[0]) == 0 {
			t.Fatalf("layer %d got a tier of %d layers", i, tier.Span)
		}
	}
	if most > 3*TierFan || forms[len(forms)-1] != base {
		t.Errorf("3000 layers open as up to %d forms", most)
	}
	// The base goes into a tier when what lies on it is a quarter of it.
	forms = []Form{{&Layer{ID: "base", State: api.Stored, Size: 8 << 20}, false}}
	for i := range TierFan {
		l := &Layer{ID: fmt.Sprint(i), Parent: forms[0].ID, State: api.Stored, Size: 200 << 10}
		forms = append([]Form{{l, false}}, forms...)
	}
	if n := tierOf(forms); n != len(forms) {
		t.Errorf("got a tier of %d forms, want %d", n, len(forms))
	}
}
