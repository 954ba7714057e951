package catalog

import (
	"errors"
	"testing"

	"snapfs/sandbox/api"
)

func TestDecodeEvent(t *testing.T) {
	good, err := decodeEvent("w/x", []byte(`{"id":"x","workspace":"w","kind":"created","level":"info"}`))
	if err != nil || good.Kind != api.EventCreated {
		t.Errorf("got %+v, %v", good, err)
	}
	for _, bad := range []string{`{"kind":"teleported"}`, `{"kind":""}`, `{}`, `null`, `[]`, `{"kind":`, ``, `{"kind":7}`} {
		if e, err := decodeEvent("w/x", []byte(bad)); !errors.Is(err, api.ErrCorrupt) {
			t.Errorf("%s: got %+v, %v", bad, e, err)
		}
	}
}
