package mcp

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestErrorsAreJSON: what is no request of the protocol is answered as all calls of the daemon answer.
func TestErrorsAreJSON(t *testing.T) {
	s := newStation(t)
	_, url := s.address()
	for _, tc := range []struct {
		method, query, token, kind, body string
		status                           int
		class                            string
	}{
		{http.MethodPost, "", "one", "text/xml", "<x/>", 415, "invalid"},
		{http.MethodPut, "", "one", "application/json", "{}", 405, "invalid"},
		{http.MethodPost, "?workspace=No", "one", "application/json", "{}", 400, "invalid"},
		{http.MethodPost, "", "", "application/json", "{}", 403, "refused"},
	} {
		r := request1(t, tc.method, url+tc.query, tc.token, "", tc.body)
		r.Header.Set("Content-Type", tc.kind)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err = errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		var got refusal
		err = json.Unmarshal(text, &got)
		if answer.StatusCode != tc.status || err != nil || got.Error.Class != tc.class || got.Error.Message == "" ||
			!strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%+v: %s %s: %v", tc, answer.Status, text, err)
		}
	}
}
