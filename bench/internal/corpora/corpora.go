package corpora

import (
	"context"
	"slices"
)

// Corpus is a recipe for a history of states.
type Corpus struct {
	Name     string
	about    string
	programs []string // that building needs
	root     bool     // building needs privilege
	long     bool     // built and measured with --full or by name only
	recipe   int      // raised when the recipe changes, so that the cache is not used
	digest   string   // of the states that the committed results were measured on
	Disk     int64    // bytes that building takes at its peak
	Logical  int64    // bytes of all states
	build    func(ctx context.Context, b *Builder) error
}

// All gives all corpora, in the order of their names.
func All() []Corpus {
	return []Corpus{sourceCorpus(), nodeCorpus(), agentCorpus(), noiseCorpus(), debianCorpus(), repositoryCorpus()}
}

// Names gives the names of all corpora.
func Names() []string {
	var names []string
	for _, c := range All() {
		names = append(names, c.Name)
	}
	return names
}

// History is a built corpus: directories in order of time.
type History struct {
	Name   string
	About  string
	Digest string // that is expected; "": any
	States []string
}

// Chosen are those named, or without names the usual ones, with full all.
func Chosen(names []string, full bool) []Corpus {
	var out []Corpus
	for _, c := range All() {
		if slices.Contains(names, c.Name) || len(names) == 0 && (!c.long || full) {
			out = append(out, c)
		}
	}
	return out
}
