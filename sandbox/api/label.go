package api

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Labels are words that programs put on a workspace, and find again: key and value. The service gives them no meaning. A
// workspace keeps them when it is renamed, rolled back or mounted again; one that is made from another gets those of its
// own request only.
type Labels map[string]string

// Bounds of the labels of a workspace.
const (
	MaxLabels     = 32  // how many
	MaxLabelValue = 512 // bytes of a value
)

var labelGrammar = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$`)
})

// Valid says what is wrong with labels; ErrInvalid.
func (l Labels) Valid() error {
	if len(l) > MaxLabels {
		return fmt.Errorf("%w: %d labels: %d at most", ErrInvalid, len(l), MaxLabels)
	}
	for key, value := range l {
		if !labelGrammar().MatchString(key) {
			return fmt.Errorf("%w: label %s: 1 to 63 lower-case letters, digits and inner . _ / -", ErrInvalid, Quoted(key))
		}
		if len(value) > MaxLabelValue || !utf8.ValidString(value) || containsControl(value) {
			return fmt.Errorf("%w: label %s: its value must be UTF-8 without control characters of at most %d bytes",
				ErrInvalid, key, MaxLabelValue)
		}
	}
	return nil
}

func containsControl(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}

// Labelling is the call about labels of workspaces.
type Labelling interface {
	// Label changes the labels of a workspace, all at once, and describes it.
	Label(ctx context.Context, r LabelRequest) (Workspace, error)
}

// LabelRequest puts labels on a workspace, in the place of those with the same key, and takes others off. A key that is
// in both is put on.
type LabelRequest struct {
	Access
	Workspace string   `json:"workspace"`
	Put       Labels   `json:"put,omitempty"`
	Remove    []string `json:"remove,omitempty"`
}
