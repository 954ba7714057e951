package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"snapfs/internal/statcache"
	"snapfs/layers"
	"snapfs/sandbox/internal/peer"
)

// seenDir is the directory of a home with what imports have noted of the files that they read. It is safe to remove.
const seenDir = "seen"

// notes is what an import of a directory knows from the last one, and notes for the next. What one user's imports have
// noted is not used for another's, and each file is opened with the rights of the user before its contents are taken
// from the store.
type notes struct {
	home *Home
	key  statcache.Key
	from *statcache.Reader // nil before begin
	to   *statcache.Writer // nil: nothing is noted
	kept int
}

func (h *Home) newNotes(ctx context.Context, path string, p Part) *notes {
	part := fmt.Sprintf("%q %q %t", p.Paths, p.Exclude, p.GitIgnore)
	n := &notes{home: h, key: statcache.Key{UID: uint32(os.Geteuid()), Path: path, Part: part}}
	if u := peer.From(ctx); u != nil {
		n.key.UID = u.UID
	}
	return n
}

// begin begins an import, or begins it anew. Without notes it takes longer, and that is all.
func (n *notes) begin(dev, ino uint64) layers.Seen {
	n.end(false)
	n.key.Dev, n.key.Ino = dev, ino
	dir := filepath.Join(n.home.dir, seenDir)
	var err error
	if n.from, err = statcache.Open(dir, n.key); err != nil {
		n.home.log.Warn("what an earlier import noted cannot be read", "error", err)
	}
	if n.to, err = statcache.Create(dir, n.key); err != nil {
		n.home.log.Warn("an import cannot note what it reads", "error", err)
	}
	n.kept = 0
	return n
}

// end ends an import. The notes of one that was not completed are kept if they are of no fewer files than those before.
func (n *notes) end(completed bool) {
	to := n.to
	if to == nil {
		return
	}
	n.to = nil
	end := to.Abort
	same := n.kept == to.Len() && n.kept == n.from.Len()
	if more := completed || to.Len() >= n.from.Len(); more && !same {
		end = to.Commit
	}
	if err := end(); err != nil {
		n.home.log.Warn("what an import noted cannot be kept", "error", err)
	}
	n.home.log.Debug("import noted its files", "path", n.key.Path, "noted", to.Len(), "unchanged", n.kept)
}

// Len implements layers.Seen.
func (n *notes) Len() int { return n.from.Len() }

// Find implements layers.Seen.
func (n *notes) Find(f statcache.File) ([]byte, bool) { return n.from.Find(f) }

// Note implements layers.Seen.
func (n *notes) Note(f statcache.File, note []byte) {
	if n.to != nil {
		n.to.Note(f, note)
	}
}

// Keep implements layers.Seen.
func (n *notes) Keep(f statcache.File, note []byte) {
	n.kept++
	n.Note(f, note)
}
