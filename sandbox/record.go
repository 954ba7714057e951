package sandbox

import (
	"encoding/hex"
	"time"

	"snapfs/chunkstore"
)

// Buckets of the store that hold the records, each a JSON document.
//
//	bucket      key                 record
//	workspaces  name                workspaceRecord
//	snapshots   id                  snapshotRecord
//	layers      id                  layerRecord
//	trash       number of an upper  empty: the directory is to be removed
//	events      workspace/id        Event
//	packing     id of a layer       packingRecord: it is being stored, or is parked
//	merges      manifest            empty: a merged image that no layer names yet
//	meta        "last-id"           every id made later is greater, whatever the clock says then
//	meta        "home"              identity of the home, as in its marker
//
// Package uppers records in two more keys of meta, and in a bucket of its own, which numbers are in use.
const (
	bucketWorkspaces = "workspaces"
	bucketSnapshots  = "snapshots"
	bucketLayers     = "layers"
	bucketTrash      = "trash"
	bucketEvents     = "events"
	bucketMerges     = "merges"
	bucketPacking    = "packing"
	bucketMeta       = "meta"
	keyLastID        = "last-id"
	keyHome          = "home"
)

// workspaceRecord is what is durable of a workspace. Immutable once in the catalog: a change replaces it.
type workspaceRecord struct {
	ID        string       `json:"id"`
	Session   string       `json:"session"`
	Origin    string       `json:"origin,omitempty"`
	Head      string       `json:"head,omitempty"`
	Base      string       `json:"base,omitempty"` // layer below the upper; "" if there is none
	Upper     uint64       `json:"upper"`
	CreatedAt time.Time    `json:"created_at"`
	Source    string       `json:"source,omitempty"`
	Foreign   *bool        `json:"foreign,omitempty"` // nil before it was recorded, see foreign.go
	Mount     *mountRecord `json:"mount,omitempty"`   // the newest place
	Paused    bool         `json:"paused,omitempty"`
	Cgroup    string       `json:"cgroup,omitempty"` // directory of the control group of its processes, if known
	// Freezing is the control group that is about to be frozen, is, or is about to be thawed, while the workspace is running: whoever
	// opens the home after a crash thaws it.
	Freezing string `json:"freezing,omitempty"`
}

// mountRecord is where a workspace was mounted last, written before the mount and again after it.
type mountRecord struct {
	Mountpoint string       `json:"mountpoint"`
	Options    MountOptions `json:"options"`
	Mounted    bool         `json:"mounted"`          // wanted there: what Options.Remount brings back
	Device     string       `json:"device,omitempty"` // major:minor, to know our own dead mount by
	Home       string       `json:"home,omitempty"`   // directory of the home then: a copy of it has the same records
}

// snapshotRecord is what is durable of a snapshot. Immutable.
type snapshotRecord struct {
	ID          string     `json:"id"`
	Workspace   string     `json:"workspace"`
	Session     string     `json:"session"`
	Name        string     `json:"name,omitempty"`
	Description string     `json:"description,omitempty"`
	Parent      string     `json:"parent,omitempty"`
	Top         string     `json:"top,omitempty"`        // topmost layer; "" is the empty tree
	ParentTop   string     `json:"parent_top,omitempty"` // topmost layer of what it differs from; always at or below Top
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	Unchanged   bool       `json:"unchanged,omitempty"`
	Foreign     *bool      `json:"foreign,omitempty"` // nil before it was recorded, see foreign.go
}

func (r *snapshotRecord) expired(now time.Time) bool {
	return r.ExpiresAt != nil && !now.Before(*r.ExpiresAt)
}

// layerRecord is what is durable of a layer. Its Lower's key is the id. Replaced when it is stored, when it takes in the
// layers below it, and when it gets or loses a tier.
type layerRecord struct {
	ID       string        `json:"id"`
	Parent   string        `json:"parent,omitempty"`
	State    SnapshotState `json:"state"`
	Upper    uint64        `json:"upper,omitempty"` // directory of a sealed layer, 0 once it is stored
	Manifest chunkstore.ID `json:"manifest,omitempty"`
	Size     int64         `json:"size,omitempty"`
	Digest   string        `json:"digest,omitempty"`
	NoSync   bool          `json:"no_sync,omitempty"` // sealed without waiting for the disk
	Tier     *tierRecord   `json:"tier,omitempty"`
}

// tierRecord is an image that stands for a layer and those below it, so that deep stacks open as few lowers.
type tierRecord struct {
	Manifest chunkstore.ID `json:"manifest"`
	Size     int64         `json:"size"`
	Down     string        `json:"down,omitempty"` // the layer on which it lies; "" if there is none
	Span     int           `json:"span"`           // layers that it stood for when it was made
}

// stored is the record of the same layer as an image.
func (r layerRecord) stored(m chunkstore.Manifest) layerRecord {
	r.State, r.Upper, r.NoSync = Stored, 0, false
	r.Manifest, r.Size, r.Digest = m.ID, m.Size, hex.EncodeToString(m.Digest[:])
	return r
}
