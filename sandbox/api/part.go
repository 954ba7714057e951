package api

// Part chooses a part of a tree; the zero value is all of it.
type Part struct {
	// Paths are taken with all that is in them, and nothing else is. They are relative to the root of the tree. ErrNotFound
	// if one is not there.
	Paths []string `json:"paths,omitempty"`
	// Exclude are patterns as in a .gitignore file at the root of the tree. They go before those of GitIgnore.
	Exclude []string `json:"exclude,omitempty"`
	// GitIgnore leaves out what the .gitignore files in the tree say. Whether git knows a file does not count.
	GitIgnore bool `json:"gitignore,omitempty"`
}

// All reports whether nothing is left out.
func (p Part) All() bool { return len(p.Paths) == 0 && len(p.Exclude) == 0 && !p.GitIgnore }
