package mcp

import (
	"encoding/json"
	"net/http"
	"strings"

	"snapfs/sandbox/api"
)

// refusal is the body of an answer that is an error, in the form that all calls of the daemon have.
type refusal struct {
	Error refusalReason `json:"error"`
}

type refusalReason struct {
	Class   string `json:"class"`
	Message string `json:"message"`
}

// classOf is the class of a status that the SDK answers with.
func classOf(status int) string {
	for _, c := range api.Classes() {
		if c.Status == status {
			return c.Word
		}
	}
	if status < http.StatusInternalServerError {
		return api.ClassOf(api.ErrInvalid).Word // 405, 413, 415 and their like: the request is wrong
	}
	return api.ClassOf(nil).Word
}

// refuse sends an error.
func refuse(w http.ResponseWriter, status int, message string) {
	body, err := json.Marshal(refusal{refusalReason{classOf(status), strings.TrimSpace(message)}})
	if err != nil {
		panic(err) // strings alone can be marshalled
	}
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client is gone
}

// spoken makes JSON of errors that the SDK answers in plain text, each in one piece.
type spoken struct {
	http.ResponseWriter

	status int // of an error whose text is to come; 0: there is none
}

// WriteHeader implements http.ResponseWriter.
func (s *spoken) WriteHeader(status int) {
	if status >= 400 && strings.HasPrefix(s.Header().Get("Content-Type"), "text/plain") {
		s.status = status
		return
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (s *spoken) Write(p []byte) (int, error) {
	if status := s.status; status != 0 {
		s.status = 0
		refuse(s.ResponseWriter, status, string(p))
		return len(p), nil
	}
	return s.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (s *spoken) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Flush implements http.Flusher, for those who do not ask by a ResponseController.
func (s *spoken) Flush() { _ = http.NewResponseController(s.ResponseWriter).Flush() }
