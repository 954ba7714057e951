package api

// What becomes of conflicts.
const (
	// ConflictOurs leaves what the target has.
	ConflictOurs = "ours"
	// ConflictTheirs takes what From has.
	ConflictTheirs = "theirs"
	// ConflictMarkers puts both versions of conflicting lines into texts, with markers. Other conflicts stay.
	ConflictMarkers = "markers"
)

// ApplyRequest brings what was changed in From, a snapshot or a workspace, into To. It is a merge of three: what both
// stem from, From and To.
type ApplyRequest struct {
	Access
	From string `json:"from,omitempty"`
	// To is a workspace, or the absolute path of a directory. Without it, the one that From was made from is meant.
	To string `json:"to,omitempty"`
	// Inode is the number of the directory To as the caller sees it, DEVICE:INODE. If it is given, it has to be that for
	// the service, too.
	Inode string `json:"inode,omitempty"`
	// Base is the snapshot that both stem from, in place of the one that the home knows.
	Base string `json:"base,omitempty"`
	// Conflicts says what becomes of conflicts, see the constants. Without it nothing is changed if there are any.
	Conflicts string `json:"conflicts,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"` // change nothing
	// Serializable changes nothing if the target has changed something that programs of From have read, or if that is not
	// known: see ApplyResult.
	Serializable bool `json:"serializable,omitempty"`
	// Undo takes the last apply to To back, in place of applying anything. ErrConflict if To was changed since,
	// unless Force is set: then what was changed since is kept as by a rollback.
	Undo  bool `json:"undo,omitempty"`
	Force bool `json:"force,omitempty"`
	// Drop gives up an apply to a directory that was interrupted and cannot be gone on with, by the id that Check
	// tells, in place of applying anything. Nothing is changed in the directory: the result says what is left there.
	Drop string `json:"drop,omitempty"`
	// Progress is told of the import that an apply to a directory waits for.
	Progress func(Progress) `json:"-"`
}

// ApplyResult is what was done, would be done, or stands against it.
type ApplyResult struct {
	From string `json:"from,omitempty"`
	// Workspace or Directory is the target.
	Workspace string `json:"workspace,omitempty"`
	Directory string `json:"directory,omitempty"`
	// Applied says that the target has been changed: not with conflicts, nor with DryRun, nor if there was nothing to do.
	Applied bool          `json:"applied"`
	Changes []ApplyChange `json:"changes"`
	// Merged counts the files with lines of both sides.
	Merged    int             `json:"merged"`
	Conflicts []ApplyConflict `json:"conflicts"`
	// StaleReads is what programs of From have read, and the target has changed since: its tree is what From's work would
	// have begun with if it had been done after the target's. At most MaxStaleReads, MoreStaleReads counts the others.
	StaleReads     []StaleRead `json:"stale_reads,omitempty"`
	MoreStaleReads int         `json:"more_stale_reads,omitempty"`
	// ReadGaps says why there may be more. It is empty if nobody has asked: no reads are recorded, and Serializable is not
	// set. It is empty, too, if the target has not changed at all.
	ReadGaps []string `json:"read_gaps,omitempty"`
	// Left is what stays in a directory after an undo or a Drop: what has something in it that was not applied, or what
	// was on its way from one place to another.
	Left []ApplyLeft `json:"left,omitempty"`
	// Skips are what the host did not let a directory have.
	Skips []Skip `json:"skips,omitempty"`
	// Before and After are the snapshots of the target before and after; of a directory, as far as it was changed. They
	// expire after a week.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Kept is what was unsaved before an undo with Force.
	Kept string `json:"kept,omitempty"`
}

// ApplyChange is something that changes in the target.
type ApplyChange struct {
	Kind       string `json:"kind"` // A added, M modified, D deleted, R renamed
	Path       string `json:"path"` // afterwards; of what is deleted, before
	RawPath    []byte `json:"raw_path,omitempty"`
	OldPath    string `json:"old_path,omitempty"` // of what is renamed
	RawOldPath []byte `json:"raw_old_path,omitempty"`
}

// ApplyLeft is something that stays in a directory.
type ApplyLeft struct {
	Path    string `json:"path"`
	RawPath []byte `json:"raw_path,omitempty"`
	Detail  string `json:"detail"`
}

// ApplyConflict is something that both sides changed in different ways.
type ApplyConflict struct {
	// Kind: both changed, deleted/changed, added/added, mode/mode, owner/owner, attribute/attribute, directory/file,
	// rename/rename, type/type; refused: the host does not let the directory be changed there.
	Kind    string `json:"kind"`
	Path    string `json:"path"` // in the target if it is there, else in From
	RawPath []byte `json:"raw_path,omitempty"`
	Detail  string `json:"detail"`
}
