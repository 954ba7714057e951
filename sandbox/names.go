package sandbox

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	maxWorkspaceName = 63
	maxSnapshotName  = 256  // characters
	maxDescription   = 4096 // bytes
	maxRef           = 1024 // bytes of anything that names an object: four per character of a snapshot's name
	minPrefix        = 4    // hexadecimal digits of an abbreviated id
	// DefaultSession owns what is made without a session.
	DefaultSession = "default"
)

var (
	workspaceGrammar = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	sessionGrammar   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)
	prefixGrammar    = regexp.MustCompile(`^[0-9a-f][0-9a-f-]{3,35}$`)
	derivedSuffix    = regexp.MustCompile(`(-(restored|branch|fork)-[0-9a-f]{4,12})+$`)
)

// ValidWorkspaceName says what is wrong with the name of a workspace; ErrInvalid.
func ValidWorkspaceName(name string) error {
	if !workspaceGrammar.MatchString(name) {
		return fmt.Errorf("%w: workspace name %s: 1 to %d lower-case letters, digits and inner hyphens",
			ErrInvalid, shown(name), maxWorkspaceName)
	}
	return nil
}

// ValidSession says what is wrong with the id of a session; ErrInvalid.
func ValidSession(id string) error {
	if !sessionGrammar.MatchString(id) {
		return fmt.Errorf("%w: session %s: 1 to 128 letters, digits and . _ : @ -, a letter or digit first", ErrInvalid, shown(id))
	}
	return nil
}

func validSnapshotName(name string) error {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w: snapshot name %s: must be UTF-8 without control characters", ErrInvalid, shown(name))
	}
	if utf8.RuneCountInString(name) > maxSnapshotName {
		return fmt.Errorf("%w: snapshot name %s: longer than %d characters", ErrInvalid, shown(name), maxSnapshotName)
	}
	if isRef(name) {
		return fmt.Errorf("%w: snapshot name %s: begins with a brace, as refs do", ErrInvalid, shown(name))
	}
	if name != strings.TrimSpace(name) {
		return fmt.Errorf("%w: snapshot name %s: begins or ends with a blank", ErrInvalid, shown(name))
	}
	return nil
}

func validDescription(d string) error {
	if !utf8.ValidString(d) || strings.ContainsRune(d, 0) || len(d) > maxDescription {
		return fmt.Errorf("%w: description: must be UTF-8 without NUL of at most %d bytes", ErrInvalid, maxDescription)
	}
	return nil
}

// validRef refuses what cannot name any object.
func validRef(ref string) error {
	if ref == "" {
		return fmt.Errorf("%w: an id or a name is missing", ErrInvalid)
	}
	if len(ref) > maxRef || !utf8.ValidString(ref) || strings.ContainsFunc(ref, unicode.IsControl) {
		return fmt.Errorf("%w: %s names nothing: too long, or not printable", ErrInvalid, shown(ref))
	}
	return nil
}

// isID reports whether s is a complete id in the one spelling that is accepted.
func isID(s string) bool {
	u, err := uuid.Parse(s)
	return err == nil && u.String() == s
}

// shown quotes and bounds a string from outside for an error message.
func shown(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// derivedName names a workspace made from another: the origin's own name, without what earlier derivations added, the way
// it was made, and random digits.
func derivedName(origin, how string, digits int) string {
	base := derivedSuffix.ReplaceAllString(origin, "")
	suffix := fmt.Sprintf("-%s-%0*x", how, digits, rand.Uint64N(1<<(4*uint(digits))))
	if len(base)+len(suffix) > maxWorkspaceName {
		base = strings.TrimRight(base[:maxWorkspaceName-len(suffix)], "-")
	}
	return base + suffix
}
