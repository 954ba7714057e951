package scoped

const (
	// maxPath is the longest path that a system call takes, in bytes.
	maxPath = 4095
	// maxLinks is how many symbolic links a path may lead over, as in the kernel.
	maxLinks = 40
	// maxAgain is how often a look-up is tried again during which something was renamed or mounted.
	maxAgain = 1000
	// piece is how many bytes are read or written at a time.
	piece = 128 << 10
	// maxEdit is the largest file that is edited, in bytes.
	maxEdit = 16 << 20
	// maxNames is how many names of one directory a search has in memory.
	maxNames = 65_536
	// maxVisited is how many files and directories one search looks at.
	maxVisited = 1_000_000
	// maxSearched is how many bytes one search reads.
	maxSearched = 1 << 30
	// maxLine is how much of a line is searched, and maxText how much of it is told.
	maxLine, maxText = 64 << 10, 1000
	// binaryHead is where a byte 0 makes a file a binary one.
	binaryHead = 8000
	// maxPattern is the length of a pattern, in bytes, and maxChoices how many patterns without braces one may stand for.
	maxPattern, maxChoices = 1024, 256
	// maxWatches is how many directories one call watches.
	maxWatches = 8192

	globDefault, globMost = 1000, 10_000
	grepDefault, grepMost = 200, 2000
)

// limit clamps what a request asks for.
func limit(asked, usual, most int) int {
	if asked <= 0 {
		return usual
	}
	return min(asked, most)
}
