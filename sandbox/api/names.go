package api

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	maxWorkspaceName = 63
	maxSnapshotName  = 256  // characters
	maxDescription   = 4096 // bytes
	maxRef           = 1024 // bytes of anything that names an object: four per character of a snapshot's name
	// DefaultSession owns what is made without a session.
	DefaultSession = "default"
	// SocketName is the daemon's socket in a home.
	SocketName = "daemon.sock"
	// LogName is the log in a home of a daemon in the background.
	LogName = "daemon.log"
	// SettingsName is the file in a home with the settings of its daemon.
	SettingsName = "daemon.toml"
)

// The grammars are compiled when one is first needed: that takes longer than most commands live.
var (
	workspaceGrammar = grammar(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	sessionGrammar   = grammar(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)
	idGrammar        = grammar(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	prefixGrammar    = grammar(`^[0-9a-f][0-9a-f-]{3,35}$`)
	derivedSuffix    = grammar(`(-(restored|branch|fork)-[0-9a-f]{4,12})+$`)
)

func grammar(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// ValidWorkspaceName says what is wrong with the name of a workspace; ErrInvalid.
func ValidWorkspaceName(name string) error {
	if !workspaceGrammar().MatchString(name) {
		return fmt.Errorf("%w: workspace name %s: 1 to %d lower-case letters, digits and inner hyphens",
			ErrInvalid, Quoted(name), maxWorkspaceName)
	}
	return nil
}

// ValidSession says what is wrong with the id of a session; ErrInvalid.
func ValidSession(id string) error {
	if !sessionGrammar().MatchString(id) {
		return fmt.Errorf("%w: session %s: 1 to 128 letters, digits and . _ : @ -, a letter or digit first",
			ErrInvalid, Quoted(id))
	}
	return nil
}

// ValidSnapshotName says what is wrong with the name of a snapshot; ErrInvalid.
func ValidSnapshotName(name string) error {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w: snapshot name %s: must be UTF-8 without control characters", ErrInvalid, Quoted(name))
	}
	if utf8.RuneCountInString(name) > maxSnapshotName {
		return fmt.Errorf("%w: snapshot name %s: longer than %d characters", ErrInvalid, Quoted(name), maxSnapshotName)
	}
	if IsRef(name) {
		return fmt.Errorf("%w: snapshot name %s: begins with a brace, as refs do", ErrInvalid, Quoted(name))
	}
	if name != strings.TrimSpace(name) {
		return fmt.Errorf("%w: snapshot name %s: begins or ends with a blank", ErrInvalid, Quoted(name))
	}
	return nil
}

// ValidDescription says what is wrong with the description of a snapshot; ErrInvalid.
func ValidDescription(d string) error {
	if !utf8.ValidString(d) || strings.ContainsRune(d, 0) || len(d) > maxDescription {
		return fmt.Errorf("%w: description: must be UTF-8 without NUL of at most %d bytes", ErrInvalid, maxDescription)
	}
	return nil
}

// ValidReference refuses what cannot name any object; ErrInvalid.
func ValidReference(ref string) error {
	if ref == "" {
		return fmt.Errorf("%w: an id or a name is missing", ErrInvalid)
	}
	if len(ref) > maxRef || !utf8.ValidString(ref) || strings.ContainsFunc(ref, unicode.IsControl) {
		return fmt.Errorf("%w: %s names nothing: too long, or not printable", ErrInvalid, Quoted(ref))
	}
	return nil
}

// IsID reports whether s is a complete id, a UUID in the one spelling that is accepted.
func IsID(s string) bool { return idGrammar().MatchString(s) }

// IsPrefix reports whether s may be an abbreviated id.
func IsPrefix(s string) bool { return prefixGrammar().MatchString(s) }

// Quoted quotes and bounds a string from outside for an error message.
func Quoted(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// DerivedName names a workspace made from another: the origin's own name, without what earlier derivations added, the
// way it was made, and random digits.
func DerivedName(origin, how string, digits int) string {
	base := derivedSuffix().ReplaceAllString(origin, "")
	suffix := fmt.Sprintf("-%s-%0*x", how, digits, rand.Uint64N(1<<(4*uint(digits))))
	if len(base)+len(suffix) > maxWorkspaceName {
		base = strings.TrimRight(base[:maxWorkspaceName-len(suffix)], "-")
	}
	return base + suffix
}
