package httpapi

import (
	"time"
)

// Envelope is an answer that is no error.
type Envelope[T any] struct {
	Success bool `json:"success" doc:"true"`
	Data    T    `json:"data"`
}

// Status is where a sandbox is in its life.
type Status string

// States of a sandbox.
const (
	Running Status = "running"
	Paused  Status = "paused"
)

// Sandbox describes a sandbox. A time of year 1 means that there is none.
type Sandbox struct {
	ID                string     `json:"id"`
	TemplateID        string     `json:"template_id"`
	TeamID            string     `json:"team_id" doc:"the session that owns it"`
	Status            Status     `json:"status" enum:"running,paused"`
	Paused            bool       `json:"paused"`
	AutoResume        bool       `json:"auto_resume" doc:"a change of a file resumes it"`
	Resources         *Resources `json:"resources,omitempty"`
	PodName           string     `json:"pod_name"`
	RuntimeGeneration int64      `json:"runtime_generation" doc:"grows with each resume"`
	ExpiresAt         time.Time  `json:"expires_at" doc:"when it is paused"`
	HardExpiresAt     time.Time  `json:"hard_expires_at" doc:"when it is deleted"`
	ClaimedAt         time.Time  `json:"claimed_at"`
	CreatedAt         time.Time  `json:"created_at"`
	UpdatedAt         time.Time  `json:"updated_at"`
	Mountpoint        string     `json:"mountpoint,omitempty" doc:"where programs of the machine find its files"`
}

// SandboxSummary is a sandbox in a list.
type SandboxSummary struct {
	ID                string    `json:"id"`
	TemplateID        string    `json:"template_id"`
	Status            Status    `json:"status" enum:"running,paused"`
	Paused            bool      `json:"paused"`
	RuntimeGeneration int64     `json:"runtime_generation"`
	CreatedAt         time.Time `json:"created_at"`
	ExpiresAt         time.Time `json:"expires_at"`
	HardExpiresAt     time.Time `json:"hard_expires_at"`
	UpdatedAt         time.Time `json:"updated_at"`
}

// SandboxList is a part of a list.
type SandboxList struct {
	Sandboxes []SandboxSummary `json:"sandboxes"`
	Count     int              `json:"count" doc:"of all that match"`
	HasMore   bool             `json:"has_more"`
}

// SandboxStatus is the short form of a sandbox.
type SandboxStatus struct {
	SandboxID     string `json:"sandbox_id"`
	TemplateID    string `json:"template_id"`
	TeamID        string `json:"team_id"`
	PodName       string `json:"pod_name"`
	Status        Status `json:"status" enum:"running,paused"`
	ClaimedAt     string `json:"claimed_at"`
	ExpiresAt     string `json:"expires_at,omitempty"`
	HardExpiresAt string `json:"hard_expires_at,omitempty"`
	CreatedAt     string `json:"created_at"`
}

// Resources are limits of processes. They are kept and shown; nothing runs in a sandbox that they could limit.
type Resources struct {
	Memory string `json:"memory,omitempty" maxLength:"32"`
}

// Config is how a sandbox is to be. Network, Webhook and Services must be empty.
type Config struct {
	EnvVars    map[string]string `json:"env_vars,omitempty" maxProperties:"1000" doc:"of processes: without effect"`
	Resources  *Resources        `json:"resources,omitempty"`
	TTL        *int64            `json:"ttl,omitempty" minimum:"0" maximum:"315360000" doc:"seconds until it is paused"`
	HardTTL    *int64            `json:"hard_ttl,omitempty" minimum:"0" maximum:"315360000" doc:"seconds until it is deleted"`
	AutoResume *bool             `json:"auto_resume,omitempty"`
	Network    map[string]any    `json:"network,omitempty"`
	Webhook    map[string]any    `json:"webhook,omitempty"`
	Services   []any             `json:"services,omitempty"`
}

// ClaimRequest makes a sandbox, of a template or of a snapshot.
type ClaimRequest struct {
	Template   string  `json:"template,omitempty" maxLength:"1024" doc:"default, or the name of a snapshot, or WORKSPACE:NAME"`
	SnapshotID string  `json:"snapshot_id,omitempty" maxLength:"128"`
	Config     *Config `json:"config,omitempty"`
	Mounts     []any   `json:"mounts,omitempty" doc:"must be empty"`
}

// Claim says what was claimed.
type Claim struct {
	SandboxID       string `json:"sandbox_id"`
	Status          Status `json:"status" enum:"running,paused"`
	PodName         string `json:"pod_name"`
	Template        string `json:"template"`
	BootstrapMounts []any  `json:"bootstrap_mounts"`
}

// UpdateRequest changes how a sandbox is. TTLs begin anew.
type UpdateRequest struct {
	Config *Config `json:"config,omitempty"`
}

// RefreshRequest puts the soft end off.
type RefreshRequest struct {
	Duration int64 `json:"duration,omitempty" minimum:"0" maximum:"315360000" doc:"seconds from now; 0: the sandbox's ttl"`
}

// Refreshed says when a sandbox ends.
type Refreshed struct {
	SandboxID     string    `json:"sandbox_id"`
	ExpiresAt     time.Time `json:"expires_at"`
	HardExpiresAt time.Time `json:"hard_expires_at"`
}

// PauseResult says that a sandbox is paused.
type PauseResult struct {
	SandboxID string `json:"sandbox_id"`
	Paused    bool   `json:"paused"`
	Status    Status `json:"status" enum:"running,paused"`
}

// ResumeResult says that a sandbox is running.
type ResumeResult struct {
	SandboxID string `json:"sandbox_id"`
	Resumed   bool   `json:"resumed"`
}

// ForkConfig is how a fork differs from its origin.
type ForkConfig struct {
	TTL     *int64 `json:"ttl,omitempty" minimum:"0" maximum:"315360000"`
	HardTTL *int64 `json:"hard_ttl,omitempty" minimum:"0" maximum:"315360000"`
}

// ForkSandboxRequest makes a paused sandbox of the present state of another.
type ForkSandboxRequest struct {
	Config *ForkConfig `json:"config,omitempty"`
}

// Forked describes a fork.
type Forked struct {
	SourceSandboxID string  `json:"source_sandbox_id"`
	Sandbox         Sandbox `json:"sandbox"`
}

// RootfsSnapshotRequest takes a snapshot of a sandbox.
type RootfsSnapshotRequest struct {
	Name        string     `json:"name,omitempty" maxLength:"1024"`
	Description string     `json:"description,omitempty" maxLength:"4096"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty" doc:"year 1: never"`
}

// RootfsSnapshot describes a snapshot of a sandbox.
type RootfsSnapshot struct {
	ID          string     `json:"id"`
	SandboxID   string     `json:"sandbox_id"`
	Name        string     `json:"name,omitempty"`
	Description string     `json:"description,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

// RootfsSnapshotList are the snapshots of a sandbox, the oldest first.
type RootfsSnapshotList struct {
	Snapshots []RootfsSnapshot `json:"snapshots"`
	Count     int              `json:"count"`
}

// RestoreRootfsRequest moves a paused sandbox to a snapshot, in place.
type RestoreRootfsRequest struct {
	SnapshotID string `json:"snapshot_id" maxLength:"128"`
}

// RestoredRootfs says that it was moved.
type RestoredRootfs struct {
	SandboxID  string `json:"sandbox_id"`
	SnapshotID string `json:"snapshot_id"`
	Status     Status `json:"status" enum:"running,paused"`
}

// Message is an answer that says nothing but that it is done.
type Message struct {
	Message string `json:"message"`
}

// Deleted says that something is gone.
type Deleted struct {
	Deleted bool `json:"deleted"`
}

// Ready is the answer of the restore of a volume.
type Ready struct {
	Status string `json:"status"`
}
