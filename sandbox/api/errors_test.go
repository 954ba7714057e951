package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestClasses pins what scripts, clients and proxies rely on.
func TestClasses(t *testing.T) {
	for _, test := range []struct {
		err          error
		word         string
		exit, status int
	}{
		{ErrInvalid, "invalid", 2, 400},
		{ErrNotFound, "not_found", 3, 404},
		{ErrConflict, "conflict", 4, 409},
		{ErrRefused, "refused", 5, 403},
		{ErrCorrupt, "corrupt", 6, 500},
		{ErrUnavailable, "unavailable", 7, 503},
		{context.Canceled, "canceled", 1, 499},
		{context.DeadlineExceeded, "deadline", 1, 504},
		{errors.New("of no class"), "failed", 1, 500},
		{errors.Join(context.Canceled, ErrCorrupt), "corrupt", 6, 500},
	} {
		got := ClassOf(fmt.Errorf("x: %w", test.err))
		if got.Word != test.word || got.Exit != test.exit || got.Status != test.status || got.Meaning == "" {
			t.Errorf("%v: got %+v", test.err, got)
		}
	}
}
