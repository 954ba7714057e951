package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// Words of errors that are in no class of package api: they are about HTTP.
const (
	codeTooLarge  = "too_large"
	codeAbsent    = "not_implemented"
	codeMethod    = "method_not_allowed"
	codeTimeout   = "timeout"
	codeMediaType = "unsupported_media_type"
)

// maxMessage bounds what of an error's text is sent, in bytes.
const maxMessage = 2048

// Failure is the body of an answer that is an error.
type Failure struct {
	Success bool          `json:"success" doc:"false"`
	Reason  FailureReason `json:"error"`

	status int
}

// FailureReason says what went wrong.
type FailureReason struct {
	Code    string `json:"code" doc:"the class of the error" example:"not_found"`
	Message string `json:"message"`
	Details any    `json:"details,omitempty"`
}

// Error implements error.
func (f *Failure) Error() string { return f.Reason.Message }

// GetStatus implements huma.StatusError.
func (f *Failure) GetStatus() int { return f.status }

func fail(status int, code, message string) *Failure {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return &Failure{status: status, Reason: FailureReason{Code: code, Message: message}}
}

// failure gives an error the form in which it is sent.
func failure(err error) *Failure {
	var f *Failure
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &large):
		return fail(http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("more than %d bytes", large.Limit))
	}
	class := api.ClassOf(err)
	return fail(class.Status, class.Word, err.Error())
}

// told gives the error that the caller of a call is told. Of what is another session's it learns that it is: an id is not
// guessed. The audit takes note.
func told(ctx context.Context, call string, err error) error {
	by := caller.From(ctx)
	if errors.Is(err, api.ErrRefused) && by != nil && !by.Trusted {
		by.Refuse(call, err)
		return fmt.Errorf("%w: it belongs to another session, or is not for holders of a token", api.ErrRefused)
	}
	return by.Tell(call, err)
}

// absent is for what no file system has.
func absent(what string) *Failure {
	return fail(http.StatusNotImplemented, codeAbsent, what+": snapfs is a file system, and does not have this")
}

// writeFailure sends an error.
func writeFailure(w http.ResponseWriter, err error) {
	f := failure(err)
	body, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings alone can be marshalled
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_, _ = w.Write(append(body, '\n')) // the client is gone
}

// The library asks these for the form of the errors that it finds itself: of what a request must look like. They are variables
// of the library: there is one form per program.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		if status == http.StatusUnprocessableEntity || msg == "cannot read request body" { // that was cut short
			status = http.StatusBadRequest
		}
		for _, err := range errs {
			if err != nil {
				msg += ": " + err.Error()
			}
		}
		code := api.ClassOf(api.ErrInvalid).Word
		switch status {
		case http.StatusRequestEntityTooLarge:
			code = codeTooLarge
		case http.StatusRequestTimeout:
			code = codeTimeout
		case http.StatusUnsupportedMediaType:
			code = codeMediaType
		case http.StatusInternalServerError:
			code = api.ClassOf(errors.New("")).Word
		}
		return fail(status, code, msg)
	}
}
