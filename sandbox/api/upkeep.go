package api

import "time"

// StatsRequest asks for the space of Ref, of all that the asker's session owns, or of the whole home.
type StatsRequest struct {
	Access
	Ref       string `json:"ref,omitempty"`
	OfSession bool   `json:"of_session,omitempty"`
}

// Stats is space in bytes, Stored = Unique + Shared. Of a reference or a session: of its stored layers; Unique is what
// only it needs, and Reclaimable what deleting it makes so. Of a home: Unique is the sum over its snapshots and
// workspaces, Reclaimable is what no longer serves any.
type Stats struct {
	Ref         string `json:"ref,omitempty"`
	Session     string `json:"session,omitempty"`
	Workspaces  int64  `json:"workspaces"`
	Snapshots   int64  `json:"snapshots"`
	Layers      int64  `json:"layers"`
	Documents   int64  `json:"documents,omitempty"` // of agents' sessions; of a snapshot those that are tied to it
	Logical     int64  `json:"logical"`
	Stored      int64  `json:"stored"`
	Unique      int64  `json:"unique"`
	Shared      int64  `json:"shared"`
	Reclaimable int64  `json:"reclaimable"`
	Upper       int64  `json:"upper"`                 // allocated in writable uppers
	Sealed      int64  `json:"sealed"`                // allocated in sealed directories not stored yet, and in copies of what is imported
	Packs       int64  `json:"packs"`                 // store only
	Index       int64  `json:"index"`                 // store only
	IndexCache  int64  `json:"index_cache,omitempty"` // memory that the caches of the index may take; store only
	Written     int64  `json:"written,omitempty"`     // to packs since the home was opened: new data; store only
	Moved       int64  `json:"moved,omitempty"`       // and by collections; store only

	Quota *QuotaState `json:"quota,omitempty"` // of a workspace that has a limit

	// Of a home: bytes of Reclaimable that a collection could not free now, and who keeps them.
	PinnedBytes int64    `json:"pinned_bytes,omitempty"`
	Pinned      []Pinned `json:"pinned,omitempty"`
}

// PinReason tells why something keeps space that nothing names any more.
type PinReason string

// Reasons to keep space.
const (
	PinDeleted PinReason = "deleted-files" // deleted files lie in it that programs have open; goes with them
	PinMount   PinReason = "mount"         // the mount shows it and has not gone on to what was merged; GC tries again
	PinCall    PinReason = "call"          // an export, a comparison or another call reads it
)

// Pinned is space in the store that a collection cannot free, because somebody reads what no snapshot, workspace or
// layer names any more. Different entries may be about the same bytes.
type Pinned struct {
	Why        PinReason `json:"why"`
	Workspace  string    `json:"workspace,omitempty"` // whose mount keeps it; "" for calls
	Mountpoint string    `json:"mountpoint,omitempty"`
	Files      int       `json:"files,omitempty"`  // deleted and open
	Detail     string    `json:"detail,omitempty"` // the error that keeps a mount from going on
	Bytes      int64     `json:"bytes"`
}

// PruneRequest deletes snapshots by rule, for each workspace on its own. What one of the two keep rules names stays,
// and what is younger than OlderThan; all else goes, with or without a name. A snapshot that a workspace is at stays,
// too, and what a rollback has kept until it expires; the latter do not count. At least one rule is needed. DryRun only
// tells.
type PruneRequest struct {
	Access
	Workspace string        `json:"workspace,omitempty"` // "" = all
	KeepLast  int           `json:"keep_last,omitempty"`
	KeepDaily int           `json:"keep_daily,omitempty"` // the newest of each of so many days (UTC) that have any
	OlderThan time.Duration `json:"older_than,omitempty"`
	DryRun    bool          `json:"dry_run"`
}

// PruneResult says what was deleted, or with DryRun, what would be; oldest first.
type PruneResult struct {
	Deleted     []Snapshot `json:"deleted"`
	WouldDelete []Snapshot `json:"would_delete"`
	Kept        int        `json:"kept"`
	DryRun      bool       `json:"dry_run"`
}

// GCRequest collects garbage; Optimize also repacks cold data.
type GCRequest struct {
	Optimize bool `json:"optimize"`
	// Full returns nearly all garbage, even if most of the store must be written anew. Daemons of earlier versions refuse
	// a request that has it, so it is there only if it is set.
	Full bool `json:"full,omitempty"`
	// MaxSize deletes the oldest turns and other snapshots without a name, of all sessions, until the home takes no more
	// than so many bytes on its disk. At which workspaces stand stays. 0: nothing is deleted.
	MaxSize  int64          `json:"max_size,omitempty"`
	Progress func(Progress) `json:"-"`
}

// GCResult is what a collection gave.
type GCResult struct {
	Chunks  int64 `json:"chunks"`
	Freed   int64 `json:"freed"`   // bytes given back to the file system
	Dropped int64 `json:"dropped"` // bytes of garbage removed; what Freed lacks of them is reused for new data
	Expired int   `json:"expired"` // snapshots past their time that were deleted
	Left    int64 `json:"left"`    // bytes of garbage that Full would return by moving live data

	// With MaxSize: what the home takes afterwards, whether that is more, and what was deleted, oldest first.
	Size    int64      `json:"size,omitempty"`
	Over    bool       `json:"over,omitempty"`
	Deleted []Snapshot `json:"deleted,omitempty"`

	// What is kept because somebody reads it, in bytes, and who.
	PinnedBytes int64    `json:"pinned_bytes,omitempty"`
	Pinned      []Pinned `json:"pinned,omitempty"`
}

// CheckRequest verifies a home. Repair also takes what cannot be read out of the store's index: the snapshots that need
// it keep what else they have, and equal contents that come again are stored anew instead of being found damaged.
type CheckRequest struct {
	ReadData bool           `json:"read_data"`
	Repair   bool           `json:"repair"`
	Progress func(Progress) `json:"-"`
}

// Problem is one finding of Check.
type Problem struct {
	Where     string   `json:"where"`
	What      string   `json:"what"`
	Snapshots []string `json:"snapshots,omitempty"` // that are hit
	// Ino is an inode number that different files of one tree have, Paths are their paths; one that is not UTF-8 is
	// quoted as in Go.
	Ino   uint64   `json:"ino,omitempty"`
	Paths []string `json:"paths,omitempty"`
}

// CheckResult lists what is wrong; empty means clean.
type CheckResult struct {
	Problems []Problem `json:"problems"`
}

// RebuildResult says what sandbox.RebuildIndex found.
type RebuildResult struct {
	Images   int64     `json:"images"`
	Records  int64     `json:"records"`
	Chunks   int64     `json:"chunks"`
	Unneeded int64     `json:"unneeded"` // chunks that were deleted or never committed, and are left out
	Problems []Problem `json:"problems"`
	Old      string    `json:"old,omitempty"` // where the old index is kept, if there are problems
}
