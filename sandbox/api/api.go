package api

import (
	"context"
	"io"
	"time"
)

// WorkspaceState is where a workspace is in its life.
type WorkspaceState string

// States of a workspace. Detached: unmounted here, but a copy of the mount in another mount namespace still uses it.
const (
	Unmounted WorkspaceState = "unmounted"
	Mounted   WorkspaceState = "mounted"
	Detached  WorkspaceState = "detached"
)

// SnapshotState is where a snapshot is in its life.
type SnapshotState string

// States of a snapshot.
const (
	Sealed SnapshotState = "sealed" // frozen and durable, not yet in the chunk store
	Stored SnapshotState = "stored"
	// Importing is the state of a Layer only: it shows a directory of the host, which is being taken into the chunk store.
	// A snapshot on it is Sealed.
	Importing SnapshotState = "importing"
)

// Workspace describes a mutable tree.
type Workspace struct {
	ID         string         `json:"id"`
	Session    string         `json:"session"`
	State      WorkspaceState `json:"state"`
	Mountpoint string         `json:"mountpoint,omitempty"`
	// LastMountpoint is where an unmounted workspace was mounted last.
	LastMountpoint string `json:"last_mountpoint,omitempty"`
	Paused         bool   `json:"paused"`
	Cgroup         string `json:"cgroup,omitempty"` // directories of the control groups of its processes, if known, one a line
	ReadOnly       bool   `json:"read_only"`
	NoSUID         bool   `json:"nosuid"`
	NoDev          bool   `json:"nodev"`
	Transport      string `json:"transport,omitempty"`
	// Engine is EngineKernel if its mount is the kernel's, or will be; "" is EngineFUSE.
	Engine  string `json:"engine,omitempty"`
	Origin  string `json:"origin,omitempty"`  // snapshot it was made from; of a fork, the Head of the other workspace then
	Head    string `json:"head,omitempty"`    // newest snapshot of its history
	Layers  int    `json:"layers"`            // depth of its stack
	Problem string `json:"problem,omitempty"` // why a layer of its stack is not stored; see Layer.Problem
	// Import tells of the directory that the workspace stands on and that is still being taken into the store; nil if
	// there is none.
	Import    *Import   `json:"import,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	Source    string    `json:"source,omitempty"` // what it was created from
	// Foreign: the tree comes from an image file, or from a directory on a file system mounted nosuid. It is mounted
	// NoSUID and NoDev unless MountOptions say otherwise.
	Foreign bool `json:"foreign"`
	// View: it shows the snapshot Origin read-only, for one mount, and is destroyed with that.
	View   bool   `json:"view,omitempty"`
	Labels Labels `json:"labels,omitempty"`
	// Requests counts what the kernel has asked of the present mount, by FUSE's names of the requests. Only Show fills
	// it.
	Requests map[string]uint64 `json:"requests,omitempty"`
	// Quota is what it may take of the home's disk, and what it takes; nil: it has no limit.
	Quota *QuotaState `json:"quota,omitempty"`
}

// Import tells how far a directory is taken into the store on which a workspace stands already. Until it is, files that
// nobody has read are read from the directory.
type Import struct {
	Directory string `json:"directory"`
	Running   bool   `json:"running"` // else it waits for others, or to be tried again
	// Files and Bytes are what the present attempt has taken. Total is how many files the directory had when it was
	// imported before; -1 if it never was.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	Total int64 `json:"total"`
	// Changed counts the files that were found changed in the directory after the workspace had shown them. The workspace
	// goes on to show what it did.
	Changed int64 `json:"changed,omitempty"`
	// Missing counts the names that were listed in the directory and are gone. They are looked for until the import ends.
	Missing int64 `json:"missing,omitempty"`
	// Problem is why the last attempt failed. It is tried again, less and less often, and at once when a call waits for it.
	Problem string `json:"problem,omitempty"`
}

// Snapshot describes an immutable point in time.
type Snapshot struct {
	ID          string        `json:"id"`
	Workspace   string        `json:"workspace"`
	Session     string        `json:"session"`
	Name        string        `json:"name,omitempty"`
	Description string        `json:"description,omitempty"`
	Parent      string        `json:"parent,omitempty"`
	State       SnapshotState `json:"state"`
	CreatedAt   time.Time     `json:"created_at"`
	ExpiresAt   *time.Time    `json:"expires_at,omitempty"`
	Depth       int           `json:"depth"`             // how many layers there are
	Layers      []Layer       `json:"layers"`            // topmost first; Show gives all, other calls at most 100
	Problem     string        `json:"problem,omitempty"` // of the topmost layer that has one, as of a workspace
	Unchanged   bool          `json:"unchanged"`         // nothing differed from the parent: no layer was added
	Turn        int           `json:"turn,omitempty"`    // number of the turn that it is; 0 if it is none
	Foreign     bool          `json:"foreign"`           // as of a workspace
	// Unsaved: nobody asked for it. It has what would have been lost otherwise.
	Unsaved bool `json:"unsaved,omitempty"`
	Ref     Ref  `json:"ref"` // names it among snapshots of several providers
}

// Layer describes one layer of a snapshot's stack.
type Layer struct {
	ID     string        `json:"id"`
	State  SnapshotState `json:"state"`
	Size   int64         `json:"size"` // of the image in bytes, 0 while sealed
	Digest string        `json:"digest,omitempty"`
	// Problem is why a sealed layer is not going to be stored until somebody waits for that.
	Problem string `json:"problem,omitempty"`
}

// Access says who asks. The zero value is the session "default".
type Access struct {
	Session           string `json:"session"`
	AllowCrossSession bool   `json:"allow_cross_session"`
}

// SessionID is the session that asks; ErrInvalid for a malformed one.
func (a Access) SessionID() (string, error) {
	if a.Session == "" {
		return DefaultSession, nil
	}
	return a.Session, ValidSession(a.Session)
}

// Asker gives the access of a request, of whatever kind that is, to who makes or checks it.
func (a *Access) Asker() *Access { return a }

// Allows reports whether session, which is the one that asks, may use what owner owns.
func (a Access) Allows(owner, session string) bool { return owner == session || a.AllowCrossSession }

// StageWaiting is the stage of Progress in which a call waits for others of its kind to end.
const StageWaiting = "waiting for others"

// StageImport is the stage of Progress in which a call waits until the directory of a workspace is in the store.
const StageImport = "import"

// Progress reports long work; Total is -1 while unknown.
type Progress struct {
	Stage string `json:"stage"`
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
	Total int64  `json:"total"`
	Unit  string `json:"unit,omitempty"` // what Bytes and Total count, if not bytes
}

// CreateRequest makes a workspace. Source is "" (empty), a directory, an image file (.sqsh, .squashfs, .sqfs), a tar file
// (.tar, .tar.gz, .tar.zst), a container image (see [SplitImage]) or a snapshot (id, prefix or name). A workspace of a large directory is there at once, and stands on the directory until that
// is in the store, see [Import]. With a Part, or on a file system that may hang, the directory is imported first.
type CreateRequest struct {
	Access
	Part
	Quota
	Name   string `json:"name"`
	Source string `json:"source,omitempty"`
	// Platform chooses of a container image for several, as OS/ARCHITECTURE[/VARIANT]; "" is that of the daemon's machine.
	Platform string `json:"platform,omitempty"`
	// WaitImported imports the directory first, however large it is. If the call fails there is no workspace. Daemons of
	// earlier versions always do, and refuse a request that says so.
	WaitImported bool `json:"wait_imported,omitempty"`
	// Engine is that of the mounts of the workspace that name none, as in MountOptions; "" is EngineFUSE, and for Up of a
	// workspace that is there, the one it has. Another one than it is mounted with is ErrConflict.
	Engine   string         `json:"engine,omitempty"`
	Labels   Labels         `json:"labels,omitempty"`
	Expired  bool           `json:"expired,omitempty"` // also of a backup that has expired
	Progress func(Progress) `json:"-"`
}

// Resumption is how a workspace that was asked for by its name came about.
type Resumption string

// The three tiers of Up.
const (
	Same     Resumption = "same"     // it was there
	Restored Resumption = "restored" // it was lost, and has the state of its newest snapshot
	Fresh    Resumption = "fresh"    // there was nothing of that name
)

// UpRequest asks for the workspace of a name. Source and Progress are as in CreateRequest; a Source is for a fresh
// workspace only. Limits are set also on one that is there; other ones than it has are ErrRefused for who is bound to a
// session.
type UpRequest struct {
	CreateRequest
}

// UpResult says what came of it.
type UpResult struct {
	Workspace
	How Resumption `json:"how"`
}

// Engines, which show a workspace. The same workspace may be mounted with either, one after the other.
const (
	// EngineFUSE serves all of the tree.
	EngineFUSE = "fuse"
	// EngineKernel has the kernel's overlayfs merge the upper of the workspace over its layers, which are served. It needs
	// root in the initial user namespace, and Linux 6.12. While a workspace is mounted this way it has no quota, is not
	// paused, tracks no reads, and nothing is applied to it: all this is refused.
	EngineKernel = "kernel"
	// EngineAuto is what suits the workspace; today EngineFUSE.
	EngineAuto = "auto"
)

// MountRequest mounts a workspace. An empty Mountpoint means where it was mounted last. MakeMountpoint makes the
// last element of the path if it is missing. With Remount, options of mount(8) such as ro, rw or nosuid, the mount that
// is there is changed by these, in their order, and of the other fields only Mountpoint counts: ErrConflict if it is not
// empty, and the mount is elsewhere.
//
// With ReadOnly, Workspace may name a snapshot, which needs a Mountpoint. What is mounted is a View: it is destroyed when
// its mount ends, and cannot be changed, renamed, paused, or be the origin of a snapshot or a fork: ErrConflict. The
// snapshot may be deleted meanwhile.
type MountRequest struct {
	Access
	Workspace      string `json:"workspace"`
	Mountpoint     string `json:"mountpoint"`
	MakeMountpoint bool   `json:"make_mountpoint"`
	MountOptions
	Remount []string `json:"remount,omitempty"`
}

// UnmountRequest unmounts. Force detaches at once and ends the connection of copies in other mount namespaces.
type UnmountRequest struct {
	Access
	Workspace string `json:"workspace"`
	Force     bool   `json:"force"`
}

// SnapshotRequest freezes a workspace.
type SnapshotRequest struct {
	Access
	Workspace   string        `json:"workspace"`
	Name        string        `json:"name,omitempty"`
	Description string        `json:"description,omitempty"`
	TTL         time.Duration `json:"ttl,omitempty"`
	ExpiresAt   *time.Time    `json:"expires_at,omitempty"`
	WaitStored  bool          `json:"wait_stored"`
	NoSync      bool          `json:"no_sync"`
	// Consistent freezes the processes of the workspace's control group for the moment, and flushes what they stored
	// through shared mappings. Cgroup names the group; "": the one it remembers, else those of containers that have it mounted.
	Consistent bool           `json:"consistent"`
	Cgroup     string         `json:"cgroup,omitempty"`
	Progress   func(Progress) `json:"-"`
}

// RestoreRequest makes a new workspace of a snapshot, and mounts it if Mountpoint is given. MakeMountpoint makes the
// last element of the path if it is missing. Without a Name the workspace gets one.
type RestoreRequest struct {
	Access
	Quota
	Snapshot       string `json:"snapshot"`
	Name           string `json:"name,omitempty"` // of the new workspace
	Labels         Labels `json:"labels,omitempty"`
	Mountpoint     string `json:"mountpoint,omitempty"`
	MakeMountpoint bool   `json:"make_mountpoint"`
	MountOptions
}

// ForkRequest makes a new workspace of the current state of another, and mounts it if Mountpoint is given.
// Without a Name the new one gets one. Limits are not inherited.
type ForkRequest struct {
	Access
	Quota
	Workspace      string `json:"workspace"`
	Name           string `json:"name,omitempty"` // of the new workspace
	Labels         Labels `json:"labels,omitempty"`
	Mountpoint     string `json:"mountpoint,omitempty"`
	MakeMountpoint bool   `json:"make_mountpoint"`
	MountOptions
}

// RollbackRequest moves a workspace back to a snapshot, in place. A name alone means a snapshot of the workspace, or of
// its history.
type RollbackRequest struct {
	Access
	Workspace string `json:"workspace"`
	Snapshot  string `json:"snapshot"`
	Foreign   bool   `json:"foreign,omitempty"` // also to a snapshot that is not of the workspace's history
	Discard   bool   `json:"discard,omitempty"` // keep nothing of what no snapshot has
	// Force leaves the old tree of a mount by the kernel's overlayfs to the programs and copies that would keep it, with
	// what they go on writing; else they are a conflict. It has no effect on what FUSE shows, where they see the change.
	Force bool `json:"force,omitempty"`
}

// RollbackResult is the workspace after a rollback, and what it had that no snapshot had: a snapshot without a name,
// which expires after a day; nil if there was nothing.
type RollbackResult struct {
	Workspace
	Kept *Snapshot `json:"kept,omitempty"`
}

// PauseRequest holds the changes of a workspace back. Cgroup is the directory of the control group of its processes,
// which are frozen; the workspace remembers it. Without one, the containers that have the workspace mounted are frozen.
type PauseRequest struct {
	Access
	Workspace string `json:"workspace"`
	Cgroup    string `json:"cgroup,omitempty"`
}

// ListRequest pages through workspaces or snapshots; After is exclusive, Limit 0 means 100 and is clamped there.
type ListRequest struct {
	Access
	Workspace string `json:"workspace,omitempty"`
	After     string `json:"after,omitempty"` // of workspaces, Cursor of the last one; of snapshots the id
	Limit     int    `json:"limit,omitempty"`
	// NewestFirst lists what was made last first. Otherwise workspaces are in order of names, snapshots the oldest first.
	NewestFirst bool `json:"newest_first,omitempty"`
	// Views lists views of snapshots, too, among workspaces.
	Views bool `json:"views,omitempty"`
}

// Cursor is what After is to be for what follows a workspace in a list.
func (r ListRequest) Cursor(w Workspace) string {
	if r.NewestFirst {
		return w.CreatedAt.UTC().Format(time.RFC3339Nano) + "/" + w.ID
	}
	return w.ID
}

// WorkspacePage is one page; More says that another follows.
type WorkspacePage struct {
	Workspaces []Workspace `json:"workspaces"`
	More       bool        `json:"more"`
}

// SnapshotPage is one page; More says that another follows.
type SnapshotPage struct {
	Snapshots []Snapshot `json:"snapshots"`
	More      bool       `json:"more"`
}

// RefRequest names one workspace or snapshot. A workspace is named by its name or by a path inside its mount; a snapshot
// by its id, a unique prefix of that, WORKSPACE:NAME, its name alone if only one workspace has it, or the JSON form of
// its Ref. So it is wherever a request names one.
type RefRequest struct {
	Access
	Ref string `json:"ref"`
}

// DefaultKeepFor is for how long Destroy keeps what is unsaved.
const DefaultKeepFor = 7 * 24 * time.Hour

// DestroyRequest removes a workspace. What it has that no snapshot has becomes a snapshot without a name, which expires
// after KeepFor, 0 for DefaultKeepFor, or with Now is lost.
type DestroyRequest struct {
	Access
	Ref     string        `json:"ref"`
	KeepFor time.Duration `json:"keep_for,omitempty"`
	Now     bool          `json:"now,omitempty"`
}

// DestroyResult says what was removed, and what was kept of it; Kept is nil if there was nothing to keep.
type DestroyResult struct {
	Workspace string    `json:"workspace"`
	Kept      *Snapshot `json:"kept,omitempty"`
}

// RenameRequest gives a workspace or a snapshot another name.
type RenameRequest struct {
	Access
	Ref  string `json:"ref"`
	Name string `json:"name"` // without a workspace
}

// LocateRequest asks which workspace a path leads into.
type LocateRequest struct {
	Access
	Path string `json:"path"` // absolute
	// Device is the number of the file system at Path, MAJOR:MINOR, and Namespace that of the mount namespace, as the
	// caller sees them. They tell what a path means that the service sees otherwise or not at all. A client fills them in.
	Device    string `json:"device,omitempty"`
	Namespace uint64 `json:"namespace,omitempty"`
}

// Object is what a reference names: exactly one field is set.
type Object struct {
	Workspace *Workspace `json:"workspace,omitempty"`
	Snapshot  *Snapshot  `json:"snapshot,omitempty"`
}

// DiffRequest compares A with B. An empty B means: from a snapshot A to the present state of its workspace, with Parent
// from its parent to A; from the newest snapshot of a workspace A to its present state. Part is of
// both; what the .gitignore files say is taken from B, and for directories that it does not have from A.
type DiffRequest struct {
	Access
	Part
	A string `json:"a"`
	B string `json:"b,omitempty"`
	// Parent compares the snapshot A with its parent.
	Parent bool `json:"parent,omitempty"`
	// Stat and Patch also compare what is in the files, and tell of each file that lies in a directory which was
	// renamed.
	Stat  bool `json:"stat,omitempty"`
	Patch bool `json:"patch,omitempty"`
	// Binary puts the contents of binary files into patches. Without it, a patch with one is refused before the first
	// change; with it, one with a file of more than 64 MiB is.
	Binary bool `json:"binary,omitempty"`
	// GitDir puts what is in directories named .git, or called so, into patches. Without it, a patch leaves that out.
	GitDir bool `json:"git_dir,omitempty"`
	// Contents has what git would commit of B, in place of Stat and Patch: only of files and symbolic links whose contents,
	// type or executable bit have changed is told, and what such a file holds, or where such a link leads, is written
	// to it after the change. Changes then come file by file.
	Contents io.Writer `json:"-"`
	// WithContents is set by clients for Contents.
	WithContents bool `json:"with_contents,omitempty"`
	// Progress is told if the comparison has to wait for others, before the first change.
	Progress func(Progress) `json:"-"`
}

// Change is one line of a diff. RawPath is the base64 of a path that is not UTF-8.
type Change struct {
	Kind       string `json:"kind"` // A M D R T
	Path       string `json:"path"`
	RawPath    []byte `json:"raw_path,omitempty"`
	OldPath    string `json:"old_path,omitempty"` // of what was renamed, or changed in a directory that was
	RawOldPath []byte `json:"raw_old_path,omitempty"`
	Mode       uint32 `json:"mode"`     // of B, or of A if it was deleted
	Size       int64  `json:"size"`     // of B; 0 if it was deleted, and of directories
	OldMode    uint32 `json:"old_mode"` // 0 if it was added
	OldSize    int64  `json:"old_size"` // of A; 0 if it was added, and of directories
	// Stat is nil if it was not asked for, and for what has no contents that a patch could change: directories,
	// devices, …
	Stat *FileStat `json:"stat,omitempty"`
	// Patch repeats the change with 'git apply' or 'patch -p1'. Empty where git would see no change, as of an owner.
	Patch []byte `json:"patch,omitempty"`
	// Preamble goes before all patches: text that git skips, and that keeps patch(1) from applying only a part of them.
	// Only the first change has one, if it is needed.
	Preamble []byte `json:"preamble,omitempty"`
	// Lost says what of this change the patch does not have: owner, permissions, attributes, special file, empty
	// directory, long path, or .git.
	Lost []string `json:"lost,omitempty"`
}

// FileStat counts what changed in a file, as git does. Lines are those of text; binary files have none.
type FileStat struct {
	Binary    bool `json:"binary"`
	Additions int  `json:"additions"`
	Deletions int  `json:"deletions"`
}

// ExportRequest writes an image file; Path must be absolute. An existing file is replaced only when the new one is
// complete.
type ExportRequest struct {
	Access
	Part
	Snapshot    string `json:"snapshot"`
	Path        string `json:"path"`
	Format      string `json:"format"`      // FormatSquashfs, which "" is too, and so on
	Compression string `json:"compression"` // none, zstd, gzip; of squashfs also xz, lz4
	Level       int    `json:"level,omitempty"`
	Layer       bool   `json:"layer"` // only the topmost delta, as overlayfs reads it
	// Image is for FormatDocker and FormatOCI.
	Image *ImageOptions `json:"image,omitempty"`
	// Writer gets the image when it is complete, instead of a file at Path, which must be empty.
	Writer io.Writer `json:"-"`
	// Stream is set by clients for a Writer.
	Stream   bool           `json:"stream,omitempty"`
	Progress func(Progress) `json:"-"`
	// Backup is for FormatBackup, whose Path is the directory where backups are.
	Backup *BackupOptions `json:"backup,omitempty"`
}

// ExportResult says what was written.
type ExportResult struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"` // BLAKE3 of the file
	// Image is what a container image is known by; nil for other formats.
	Image *ExportedImage `json:"image,omitempty"`
	// Lost counts sockets, and attributes with impossible names, that a tar file cannot hold.
	Lost   int64   `json:"lost,omitempty"`
	Backup *Backup `json:"backup,omitempty"` // of FormatBackup: what its meta.json says
}

// ExtractRequest writes the tree of a snapshot into a directory; Path must be absolute. The directory is made if it is
// missing, and must be empty, or have what an interrupted call for the same snapshot has left, which is continued.
type ExtractRequest struct {
	Access
	Part
	// Tree names a directory of a snapshot, or of what a workspace holds now, instead of Snapshot, as FilesRequest.Ref does.
	Tree     string         `json:"tree,omitempty"`
	Snapshot string         `json:"snapshot"`
	Path     string         `json:"path"`
	NoSync   bool           `json:"no_sync"` // do not wait until the tree is on the disk
	Progress func(Progress) `json:"-"`
}

// ExtractResult says what a directory has got.
type ExtractResult struct {
	Path        string  `json:"path"`
	Snapshot    string  `json:"snapshot"`    // its id
	Directories int64   `json:"directories"` // the root included
	Files       int64   `json:"files"`       // regular files, those that were kept included
	Others      int64   `json:"others"`      // symbolic links, devices, pipes, sockets
	Links       int64   `json:"links"`       // further names of any of these
	Bytes       int64   `json:"bytes"`       // written as contents of files; holes do not count
	Kept        int64   `json:"kept"`        // files that an interrupted call had written
	Seconds     float64 `json:"seconds"`
	Skipped     int64   `json:"skipped"`         // what could not be written
	Skips       []Skip  `json:"skips,omitempty"` // the first 1000 of these
}

// Skip is something that a call could not do, and went on without. RawPath is the base64 of a path that is not UTF-8.
type Skip struct {
	Path    string `json:"path"` // relative to the directory; "." is that itself
	RawPath []byte `json:"raw_path,omitempty"`
	// What is owner, mode, times, xattr NAME, device, link (a further name became a file of its own, or is missing),
	// name (the file system does not take it) or extra (it was there, and is not of the snapshot).
	What  string `json:"what"`
	Error string `json:"error"`
}

// EventsRequest asks for the log of a workspace, which may be gone, or of all that the session may see. After is
// exclusive, Since is not. Follow goes on with what happens later.
type EventsRequest struct {
	Access
	Workspace string     `json:"workspace,omitempty"`
	After     string     `json:"after,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	Follow    bool       `json:"follow"`
}

// API is the service: *sandbox.Home implements it in process, *client.Client over the socket. Safe for concurrent use.
// Every method looks at ctx first: a call that is already cancelled starts nothing, a cancelled one leaves nothing
// behind, but for Extract.
type API interface {
	Documents
	Create(ctx context.Context, r CreateRequest) (Workspace, error)
	Up(ctx context.Context, r UpRequest) (UpResult, error)
	Mount(ctx context.Context, r MountRequest) (Workspace, error)
	Unmount(ctx context.Context, r UnmountRequest) (Workspace, error)
	Snapshot(ctx context.Context, r SnapshotRequest) (Snapshot, error)
	Restore(ctx context.Context, r RestoreRequest) (Workspace, error) // {origin}-restored-{short}, or Name
	Branch(ctx context.Context, r RestoreRequest) (Workspace, error)  // {origin}-branch-{short}, or Name
	// Fork makes a new workspace from the current state, without a snapshot of its own.
	Fork(ctx context.Context, r ForkRequest) (Workspace, error)
	// Rollback moves a workspace back to a snapshot, in place, mounted or not: what was written since is gone, or kept
	// for a day.
	Rollback(ctx context.Context, r RollbackRequest) (RollbackResult, error)
	// Turn freezes a workspace, mounted or not, as its next turn; Turns lists them.
	Turn(ctx context.Context, r TurnRequest) (TurnResult, error)
	Turns(ctx context.Context, r TurnsRequest) (TurnPage, error)
	// Undo and Redo move a workspace along its turns, in place, mounted or not. Nothing is lost by that.
	Undo(ctx context.Context, r UndoRequest) (UndoResult, error)
	Redo(ctx context.Context, r UndoRequest) (UndoResult, error)
	// Apply brings the changes of a snapshot or workspace into another workspace. Conflicts are no error: the result lists
	// them, and nothing is changed.
	Apply(ctx context.Context, r ApplyRequest) (ApplyResult, error)
	// Base tells what workspaces and snapshots stem from.
	Base(ctx context.Context, r BaseRequest) (BaseResult, error)
	// Conflicts tells what would be in conflict if two workspaces or snapshots were both applied to one target.
	Conflicts(ctx context.Context, r ConflictsRequest) (ConflictsResult, error)
	// Reads calls fn for what the programs of a workspace have read of the tree that it was made with, in the order of
	// paths, as far as it is recorded.
	Reads(ctx context.Context, r RefRequest, fn func(Read) error) (ReadsResult, error)
	// SetQuota changes what a workspace may take of the disk, also while it is mounted.
	SetQuota(ctx context.Context, r QuotaRequest) (Workspace, error)
	Pause(ctx context.Context, r PauseRequest) (Workspace, error)
	Resume(ctx context.Context, r RefRequest) (Workspace, error)
	Workspaces(ctx context.Context, r ListRequest) (WorkspacePage, error)
	Snapshots(ctx context.Context, r ListRequest) (SnapshotPage, error)
	Show(ctx context.Context, r RefRequest) (Object, error)
	// Rename gives a workspace, mounted or not, or a snapshot another name.
	Rename(ctx context.Context, r RenameRequest) (Object, error)
	Labelling
	// Locate tells which workspace a path leads into.
	Locate(ctx context.Context, r LocateRequest) (Workspace, error)
	Diff(ctx context.Context, r DiffRequest, fn func(Change) error) error
	Delete(ctx context.Context, r RefRequest) error // a snapshot; idempotent for well-formed ids
	// Destroy removes a workspace. What it has that no snapshot has is kept for a while.
	Destroy(ctx context.Context, r DestroyRequest) (DestroyResult, error)
	// Files calls fn for what is in a directory of a snapshot or a workspace, or for a file itself.
	Files(ctx context.Context, r FilesRequest, fn func(File) error) error
	// ReadFile writes the contents of a regular file of a snapshot or a workspace, and describes it.
	ReadFile(ctx context.Context, r FilesRequest, w io.Writer) (File, error)
	// Export writes an image, with Writer into that. After an error, a Writer may have a part of it.
	Export(ctx context.Context, r ExportRequest) (ExportResult, error)
	// Extract writes a tree. Cancelled or failed midway, it leaves a part of the tree, with which the next call for the
	// same snapshot and directory continues. What the service may not do, it counts as skipped.
	Extract(ctx context.Context, r ExtractRequest) (ExtractResult, error)
	Stats(ctx context.Context, r StatsRequest) (Stats, error)
	Prune(ctx context.Context, r PruneRequest) (PruneResult, error)
	Events(ctx context.Context, r EventsRequest, fn func(Event) error) error
	WorkFiles
	GC(ctx context.Context, r GCRequest) (GCResult, error)
	Check(ctx context.Context, r CheckRequest) (CheckResult, error)
	Tokens
	Close() error
}
