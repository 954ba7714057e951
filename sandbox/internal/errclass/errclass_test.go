package errclass

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/squashfs"
)

// TestMark holds which errors get which class, and that all that was wrapped is still found.
func TestMark(t *testing.T) {
	other := errors.New("other")
	for _, test := range []struct{ err, want error }{
		{chunkstore.ErrCorrupt, api.ErrCorrupt},
		{squashfs.ErrCorrupt, api.ErrCorrupt},
		{chunkstore.ErrNotFound, api.ErrCorrupt},
		{chunkstore.ErrVersion, api.ErrInvalid},
		{squashfs.ErrLimit, api.ErrInvalid},
		{chunkstore.ErrLocked, api.ErrConflict},
		{errors.Join(api.ErrRefused, chunkstore.ErrCorrupt), api.ErrRefused},
		{context.Canceled, nil},
		{other, nil},
	} {
		err := fmt.Errorf("at a place: %w", test.err)
		got := Mark(err)
		if !errors.Is(got, err) || Missing(got) != (test.want == nil) || test.want != nil && !errors.Is(got, test.want) {
			t.Errorf("%v: got %v, want class %v", err, got, test.want)
		}
		if test.want != nil && Mark(got) != got { //nolint:errorlint // the very same error
			t.Errorf("%v is marked twice", got)
		}
	}
	if Mark(nil) != nil || Missing(nil) {
		t.Error("no error has no class, and misses none")
	}
}
