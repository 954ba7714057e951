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
	// maxRef bounds, in bytes, what names an object: four per character of a snapshot's name, and a path or a workspace
	// before that.
	maxRef = 1024 + 4096
	// minPrefix is how many characters an abbreviated id has at least.
	minPrefix = 4
	// DefaultSession owns what is made without a session.
	DefaultSession = "default"
	// SocketName is the daemon's socket in a home.
	SocketName = "daemon.sock"
	// LockName is a file in a home that its daemon has locked, and has open with its holder.
	LockName = "lock"
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
	bareIDGrammar    = grammar(`^[0-9a-f]{32}$`)
	derivedSuffix    = grammar(`(-(restored|branch|fork|view|fresh)-[0-9a-f]{4,12})+$`)
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

// ValidSnapshotName says what is wrong with the name of a snapshot that is about to get it; ErrInvalid. A name is told
// from an id, a path, a ref and an option by its letters alone. That it is not the name of a workspace is for the
// service to find out. Homes of earlier versions have other names, too.
func ValidSnapshotName(name string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: snapshot name %s: %s", ErrInvalid, Quoted(name), fmt.Sprintf(format, args...))
	}
	switch {
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return bad("must be UTF-8 without control characters")
	case utf8.RuneCountInString(name) > maxSnapshotName:
		return bad("longer than %d characters", maxSnapshotName)
	case IsRef(name):
		return bad("begins with a brace, as refs do")
	case name != strings.TrimSpace(name):
		return bad("begins or ends with a blank")
	case strings.HasPrefix(name, "-"):
		return bad("begins with a dash, as options do")
	case strings.ContainsRune(name, ':'):
		return bad("has a colon, which is between the names of a workspace and a snapshot")
	case IsPath(name):
		return bad("is a path")
	case likeID(name):
		return bad("looks like an id or the beginning of one: put a word before it, as in v-%s", name)
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

// IsPrefix reports whether s may be an abbreviated id: four characters or more of one.
func IsPrefix(s string) bool {
	const dashes = "00000000-0000-0000-0000-000000000000"
	if len(s) < minPrefix || len(s) >= len(dashes) {
		return false
	}
	shape := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'f' {
			return '0'
		}
		return r
	}, s)
	return strings.HasPrefix(dashes, shape)
}

// likeID reports whether somebody could take a name for an id or a part of one: also in capitals, or for an id without
// dashes.
func likeID(name string) bool {
	name = strings.ToLower(name)
	return IsPrefix(name) || IsID(name) || bareIDGrammar().MatchString(name)
}

// IsPath reports whether what names an object is a path: it has a slash, or is "." or "..".
func IsPath(ref string) bool {
	return !IsRef(ref) && (ref == "." || ref == ".." || strings.ContainsRune(ref, '/'))
}

// SplitRef divides WORKSPACE:NAME and PATH:NAME at the colon: what names a workspace, and what names a snapshot of it.
// ok is false for what has no such form. Neither part is empty.
func SplitRef(ref string) (workspace, snapshot string, ok bool) {
	if IsRef(ref) {
		return "", "", false
	}
	workspace, snapshot, ok = strings.Cut(ref, ":")
	if ok && ValidWorkspaceName(workspace) == nil {
		return workspace, snapshot, snapshot != ""
	}
	at := strings.LastIndexByte(ref, ':')
	if at < 0 || at == len(ref)-1 || !IsPath(ref[:at]) || strings.ContainsRune(ref[at:], '/') {
		return "", "", false
	}
	return ref[:at], ref[at+1:], true
}

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
