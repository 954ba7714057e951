package wire

import (
	"fmt"

	"snapfs/sandbox/api"
)

// Versions of the protocol. Each includes those before it: fields and calls are added, and none changes its meaning.
//
//	1  before versions were told
//	2  Spoken is told; stop takes StopRequest; reload, in-use
//	3  stop takes StopRequest.Successor
//	4  token-create, tokens, token-revoke
const (
	oldest = 1
	newest = 4
)

// Headers of every request and answer. A side that sends none speaks version 1.
const (
	SpokenHeader  = "Snapfs-Protocol" // the versions of the protocol that the side speaks, as "1-2"
	VersionHeader = "Snapfs-Version"  // of its program
)

// Spoken are the versions of the protocol that a side speaks, both bounds included.
type Spoken struct{ From, To int }

// Speaks are the versions that this program speaks.
var Speaks = Spoken{oldest, newest}

func (s Spoken) String() string { return fmt.Sprintf("%d-%d", s.From, s.To) }

// ParseSpoken reads the value of SpokenHeader; what is not understood is as of a side that sends none.
func ParseSpoken(text string) Spoken {
	var s Spoken
	if n, err := fmt.Sscanf(text, "%d-%d", &s.From, &s.To); n != 2 || err != nil || s.From < 1 || s.To < s.From {
		return Spoken{oldest, oldest}
	}
	return s
}

// Common is the newest version that both sides speak, 0 if there is none.
func (s Spoken) Common(other Spoken) int {
	if v := min(s.To, other.To); v >= max(s.From, other.From) {
		return v
	}
	return 0
}

// VersionError says that a command and a daemon are of versions that do not understand each other, or not in one thing.
type VersionError struct {
	Daemon, Command string // versions of the programs, "" if not known
	What            string // what is not understood; "" = nothing is
	DaemonOlder     bool
}

func (e *VersionError) Error() string {
	what := e.What
	if what == "" {
		what = "they do not understand each other"
	}
	do := "'snapfs upgrade' of the newer version replaces the daemon"
	switch {
	case !e.DaemonOlder:
		do = "use the command that was installed with the daemon"
	case e.What == "": // it cannot be told to make room
		do = "stop the daemon with the command that was installed with it"
	}
	return fmt.Sprintf("%v: the daemon is of version %s, this command of version %s: %s: %s",
		api.ErrUnavailable, orUnknown(e.Daemon), orUnknown(e.Command), what, do)
}

// Unwrap gives the class.
func (*VersionError) Unwrap() error { return api.ErrUnavailable }

func orUnknown(version string) string {
	if version == "" {
		return "unknown"
	}
	return version
}
