package api_test

import (
	"encoding/json"
	"testing"

	"snapfs/sandbox/api"
)

// TestOlderDaemon: daemons refuse requests with fields that they do not know. What a call has learnt later must not be
// in its requests unless it is asked for.
func TestOlderDaemon(t *testing.T) {
	for _, test := range []struct {
		request any
		want    string
	}{
		{api.GCRequest{}, `{"optimize":false}`},
		{api.GCRequest{MaxSize: 1}, `{"optimize":false,"max_size":1}`},
		{api.GCRequest{Full: true}, `{"optimize":false,"full":true}`},
	} {
		got, err := json.Marshal(test.request)
		if err != nil || string(got) != test.want {
			t.Errorf("%s, want %s: %v", got, test.want, err)
		}
	}
}
