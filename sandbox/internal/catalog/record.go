package catalog

import (
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"time"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/peer"
)

// Buckets and keys of the store; see the package comment.
const (
	bucketWorkspaces = "workspaces"
	bucketSnapshots  = "snapshots"
	bucketLayers     = "layers"
	bucketTrash      = "trash"
	bucketEvents     = "events"
	bucketMerges     = "merges"
	bucketPacking    = "packing"
	bucketRenames    = "renames"
	bucketTokens     = "tokens"
	bucketAudit      = "audit"
	bucketPositions  = "positions"
	bucketDocuments  = "documents"
	bucketTied       = "tied"
	bucketScopes     = "scopes"
	bucketOwners     = "owners"
	bucketMeta       = "meta"
	keyLastID        = "last-id"
	keyHome          = "home"
)

// Workspace is what is durable of a workspace. Immutable once in the catalog: a change replaces it.
type Workspace struct {
	ID        string    `json:"id"`
	Session   string    `json:"session"`
	Origin    string    `json:"origin,omitempty"`
	Head      string    `json:"head,omitempty"`
	Base      string    `json:"base,omitempty"` // layer below the upper; "" if there is none
	Upper     uint64    `json:"upper"`
	CreatedAt time.Time `json:"created_at"`
	First     string    `json:"first,omitempty"` // id before those of its snapshots; earlier versions made none
	Source    string    `json:"source,omitempty"`
	Foreign   *bool     `json:"foreign,omitempty"` // nil before it was recorded; see IsForeign
	View      bool      `json:"view,omitempty"`    // it shows its Origin read-only, and is destroyed with its mount
	Mount     *Mount    `json:"mount,omitempty"`   // where it was mounted last
	Paused    bool      `json:"paused,omitempty"`
	Cgroup    string    `json:"cgroup,omitempty"` // directory of the control group of its processes, if known
	Turn      int       `json:"turn,omitempty"`   // number of its newest turn, which may be deleted
	Reads     *Reads    `json:"reads,omitempty"`  // nil: what its programs read is not recorded
	Redo      string    `json:"redo,omitempty"`   // snapshot to which the line of turns that were undone leads; "": none were
	// Freezing has the control groups that are about to be frozen, are, or are about to be thawed, one a line. While the
	// workspace is running, the process that opens the home after a crash thaws them.
	Freezing string     `json:"freezing,omitempty"`
	Labels   api.Labels `json:"labels,omitempty"`
	// Quota has the limits; nil: there is none.
	Quota *api.Quota `json:"quota,omitempty"`
	// Engine is api.EngineKernel if that was chosen for its mounts; "" is api.EngineFUSE.
	Engine string `json:"engine,omitempty"`
	// Kernel says that the upper is, or was, that of an overlay of the kernel; nil: it is not.
	Kernel *Kernel `json:"kernel,omitempty"`
	// Lower says of a view that it is the lower of overlays of the kernel: it shows Base, and goes with the last of them.
	Lower bool `json:"lower,omitempty"`
}

// Kernel is how the kernel's overlayfs shows a workspace. Its upper is in the kernel's hands until it becomes a layer.
type Kernel struct {
	View string `json:"view,omitempty"` // the workspace whose mount is the lower; "": that is an empty directory
	// Device and ID are those of the mount, also after it was taken away: what holds it is found by them.
	Device string `json:"device,omitempty"` // major:minor
	ID     uint64 `json:"id,omitempty"`
}

// Reads is the record of what the programs of a workspace read.
type Reads struct {
	ID    string    `json:"id"` // of the file in the home
	Since time.Time `json:"since"`
	Base  string    `json:"base,omitempty"` // topmost layer of the tree whose names it has
	// Late says that programs may have read something before.
	Late bool `json:"late,omitempty"`
}

// Mount is where a workspace was mounted last, written before the mount and again after it.
type Mount struct {
	Mountpoint string           `json:"mountpoint"`
	Options    api.MountOptions `json:"options"`
	Mounted    bool             `json:"mounted"`             // wanted there: what Options.Remount brings back
	Device     string           `json:"device,omitempty"`    // major:minor, to know our own dead mount by
	Namespace  string           `json:"namespace,omitempty"` // boot id and mount namespace
	Nested     bool             `json:"nested,omitempty"`    // in a mount of this home
	Apart      bool             `json:"apart,omitempty"`     // that is not the one of the process that had the home
	Home       string           `json:"home,omitempty"`      // directory of the home: a copy has the same records
	Source     string           `json:"source,omitempty"`    // the workspace's name then, if it has another one now
	Made       bool             `json:"made,omitempty"`      // its last element was made for the mount, and goes with it
	Guarded    uint64           `json:"guarded,omitempty"`   // inode number of the directory if it has a guard of ours
	By         *peer.User       `json:"by,omitempty"`        // whose rights the mountpoint is used with; nil: the daemon's
}

// IsForeign reports whether the tree of a workspace comes from elsewhere. Records of earlier versions do not say: there
// a workspace is foreign if it was made from an image, by its name.
func (r *Workspace) IsForeign() bool {
	if r.Foreign != nil {
		return *r.Foreign
	}
	switch filepath.Ext(r.Source) {
	case ".sqsh", ".squashfs", ".sqfs":
		return filepath.IsAbs(r.Source)
	}
	return false
}

// Took reports whether a snapshot was taken of the workspace, and not of an earlier one of its name. Only ids tell: they
// grow also when the clock goes back.
func (r *Workspace) Took(s *Snapshot) bool {
	first := r.First
	if first == "" {
		first = firstID(r.CreatedAt)
	}
	return s.Workspace == r.ID && s.ID >= first
}

// Holder is the workspace as what names a layer.
func (r *Workspace) Holder() Holder { return Holder{'w', r.ID} }

// Snapshot is what is durable of a snapshot. Immutable.
type Snapshot struct {
	ID          string     `json:"id"`
	Workspace   string     `json:"workspace"`
	Session     string     `json:"session"`
	Name        string     `json:"name,omitempty"`
	Description string     `json:"description,omitempty"`
	Parent      string     `json:"parent,omitempty"`
	Top         string     `json:"top,omitempty"`        // topmost layer; "" is the empty tree
	ParentTop   string     `json:"parent_top,omitempty"` // that of what it differs from; at or below Top
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	Unchanged   bool       `json:"unchanged,omitempty"`
	Turn        int        `json:"turn,omitempty"`    // its number, if it is a turn
	Foreign     *bool      `json:"foreign,omitempty"` // nil before it was recorded
	Unsaved     bool       `json:"unsaved,omitempty"` // taken of what would have been lost; no rule of Prune is about it
	Applied     *Applied   `json:"applied,omitempty"` // nil: nothing was
	// First is the name that the workspace had when the snapshot was taken, if it has another one now. The store has it
	// as Workspace; see Rename.
	First string `json:"-"`
}

// Applied says that a snapshot is what became of a workspace when another tree was applied to it, or, as far as it was
// changed, of a directory of the host.
type Applied struct {
	FromTop   string `json:"from_top,omitempty"`  // topmost layer of that tree
	Before    string `json:"before"`              // snapshot of the target before
	Directory string `json:"directory,omitempty"` // the target, if it is no workspace
	Partly    bool   `json:"partly,omitempty"`    // the directory did not take all owners and attributes
	Undone    bool   `json:"undone,omitempty"`    // it was taken back, from a directory
}

// Expired reports whether the snapshot is past its time.
func (r *Snapshot) Expired(now time.Time) bool {
	return r.ExpiresAt != nil && !now.Before(*r.ExpiresAt)
}

// Holder is the snapshot as what names a layer.
func (r *Snapshot) Holder() Holder { return Holder{'s', r.ID} }

// Layer is what is durable of a layer. Its Lower's key is the id. Replaced when it is stored, when it takes in the
// layers below it, and when it gets or loses a tier.
type Layer struct {
	ID       string            `json:"id"`
	Parent   string            `json:"parent,omitempty"`
	State    api.SnapshotState `json:"state"`
	Upper    uint64            `json:"upper,omitempty"` // directory of a layer that is not stored; see Source
	Manifest chunkstore.ID     `json:"manifest,omitempty"`
	Size     int64             `json:"size,omitempty"`
	Digest   string            `json:"digest,omitempty"`
	NoSync   bool              `json:"no_sync,omitempty"` // sealed without waiting for the disk
	Tier     *Tier             `json:"tier,omitempty"`
	// Imported is the directory that the layer was made of. Such a layer is not merged into those above it: what was
	// changed in the directory's tree can be told as long as something stands on it.
	Imported string `json:"imported,omitempty"`
	// Source is the directory that a layer in state api.Importing shows; nil in other states. Upper then has the copies of
	// what was read of it.
	Source *Source `json:"source,omitempty"`
	// DiffID and Chain are of a layer of a container image: its digest, and the id of it with those below it. Such a layer
	// is found by its chain id, and is not merged into those above it.
	DiffID string `json:"diff_id,omitempty"`
	Chain  string `json:"chain,omitempty"`
	// Follows is the layer with the state before of a workspace of which this one has a later state, beside it and not on
	// it: both are of one upper that the kernel's overlayfs has. It may be gone. "" for other layers, those that have what
	// has changed since their parent among them.
	Follows string `json:"follows,omitempty"`
	// Image is in the record of an empty layer over the layers of an image; nil in others. It is not merged either.
	Image *Image `json:"image,omitempty"`
}

// Image is what is kept of a container image.
type Image struct {
	ID     string          `json:"id"`     // digest of its configuration
	Config json.RawMessage `json:"config"` // what is kept of that, see package imagefile
}

// stays reports whether a layer is not to be merged into those above it.
func (r *Layer) stays() bool { return r.Imported != "" || r.Chain != "" || r.Image != nil }

// Source is a directory of the host that is being imported.
type Source struct {
	Path    string     `json:"path"`
	ID      string     `json:"id"`           // tells the directory from another one at its path
	By      *peer.User `json:"by,omitempty"` // with whose rights it is read; nil: the daemon's
	Session string     `json:"session"`      // for which it is imported
}

// Tier is an image that stands for a layer and those below it, so that deep stacks open as few lowers.
type Tier struct {
	Manifest chunkstore.ID `json:"manifest"`
	Size     int64         `json:"size"`
	Down     string        `json:"down,omitempty"` // the layer on which it lies; "" if there is none
	Span     int           `json:"span"`           // layers that it stood for when it was made
}

// Stored is the record of the same layer as an image.
func (r Layer) Stored(m chunkstore.Manifest) Layer {
	r.State, r.Upper, r.NoSync, r.Source = api.Stored, 0, false, nil
	r.Manifest, r.Size, r.Digest = m.ID, m.Size, hex.EncodeToString(m.Digest[:])
	return r
}
