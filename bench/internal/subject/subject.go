package subject

import (
	"context"
	"errors"
	"os"
	"strings"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/program"
)

// Subject is what is measured: snapfs used in one way, or a peer. S says what it is opened as: a store, a workspace or
// a mount.
type Subject[S System] struct {
	Name     string
	Programs []string // that it calls
	Root     bool     // needs privilege
	Remark   string   // what a reader of its figures must know
	Keeps    Fidelity // of trees that go through it
	Most     int      // files of a tree beyond which an operation takes minutes; 0: any number
	Thorough bool     // what it does when idle takes long, and is measured with --full only

	Open func(ctx context.Context, at Site) (S, error)
}

// System is a subject that is open. Used by one goroutine.
type System interface {
	Close(ctx context.Context) error
}

// Site is where a subject is opened, and with what.
type Site struct {
	Dir    string        // empty, for the system alone
	Tree   string        // that a workspace or a mount begins with, and that nothing writes to
	Parts  []string      // of Tree that will be used, if it is cheaper to have only these; nil: all
	Engine engine.Engine // for a subject that starts snapfs
	Home   *engine.Home  // that holds Tree, for a subject that is a mount of snapfs
}

// ErrNotOffered means that a system does not have an operation, or cannot be used on this machine.
var ErrNotOffered = errors.New("not offered")

// Fidelity is what of a tree survives in a system.
type Fidelity int

const (
	KeepsContents Fidelity = iota // contents and kinds of all files
	KeepsFiles                    // of files and links only, and of none inside of a repository
	KeepsAll                      // contents, modes, owners, times and links
)

// Names are the names of subjects, in order.
func Names[S System](list []Subject[S]) []string {
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// Available are the subjects that are wanted and can run here. What must be known of them, or why they cannot run, goes
// to note.
func Available[S System](
	list []Subject[S], wanted func(name string) bool, note func(format string, args ...any),
) []Subject[S] {
	var out []Subject[S]
	for _, s := range list {
		if !wanted(s.Name) {
			continue
		}
		if gone := program.Missing(s.Programs); len(gone) > 0 {
			note(
				"%s: not measured, missing %s (make bench-peers installs Debian's %s)", s.Name,
				strings.Join(gone, ", "), strings.Join(program.Packages(gone), ", "),
			)
			continue
		}
		if s.Root && os.Geteuid() != 0 {
			note("%s: not measured, needs root", s.Name)
			continue
		}
		if s.Remark != "" {
			note("%s: %s", s.Name, s.Remark)
		}
		out = append(out, s)
	}
	return out
}
