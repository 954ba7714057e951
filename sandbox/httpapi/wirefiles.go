package httpapi

import (
	"time"
)

// FileInfo describes a file.
type FileInfo struct {
	Name       string    `json:"name"`
	Path       string    `json:"path"`
	Type       string    `json:"type" enum:"file,dir,symlink"`
	Size       int64     `json:"size"`
	Mode       string    `json:"mode" doc:"permissions in octal" example:"0644"`
	ModTime    time.Time `json:"mod_time"`
	IsLink     bool      `json:"is_link"`
	LinkTarget string    `json:"link_target,omitempty"`
}

// FileList is what a directory holds.
type FileList struct {
	Entries []FileInfo `json:"entries"`
}

// FileContent is a file as JSON.
type FileContent struct {
	Content  string `json:"content" doc:"in base64"`
	Encoding string `json:"encoding" enum:"base64"`
}

// Written says what was made.
type Written struct {
	Written bool `json:"written"`
	Created bool `json:"created,omitempty" doc:"of a directory"`
}

// MoveRequest renames a file; missing directories on the way are made.
type MoveRequest struct {
	Source      string `json:"source" minLength:"1" maxLength:"4096"`
	Destination string `json:"destination" minLength:"1" maxLength:"4096"`
}

// Moved says that it was moved.
type Moved struct {
	Moved bool `json:"moved"`
}

// Imported counts what an archive held.
type Imported struct {
	Files       int64 `json:"files"`
	Directories int64 `json:"directories"`
	Symlinks    int64 `json:"symlinks"`
	Bytes       int64 `json:"bytes"`
}

// WatchRequest is what a client says over the WebSocket of a watch.
type WatchRequest struct {
	Action    string `json:"action" enum:"subscribe,unsubscribe"`
	Path      string `json:"path,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
	WatchID   string `json:"watch_id,omitempty"`
}

// WatchMessage is what the service says over it.
type WatchMessage struct {
	Type    string `json:"type" enum:"subscribed,event,unsubscribed,error"`
	WatchID string `json:"watch_id,omitempty"`
	Event   string `json:"event,omitempty" enum:"create,write,remove,rename,invalidate"`
	Path    string `json:"path,omitempty"`
	OldPath string `json:"old_path,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Volume describes a volume.
type Volume struct {
	ID              string    `json:"id"`
	TeamID          string    `json:"team_id"`
	UserID          string    `json:"user_id"`
	SourceVolumeID  string    `json:"source_volume_id,omitempty"`
	DefaultPosixUID int64     `json:"default_posix_uid"`
	DefaultPosixGID int64     `json:"default_posix_gid"`
	AccessMode      string    `json:"access_mode" enum:"RWO,ROX,RWX"`
	Backend         string    `json:"backend" enum:"s0fs"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
	Mountpoint      string    `json:"mountpoint,omitempty" doc:"where programs of the machine find its files"`
}

// VolumeRequest makes a volume.
type VolumeRequest struct {
	SnapshotID      string         `json:"snapshot_id,omitempty" maxLength:"128"`
	Backend         string         `json:"backend,omitempty" maxLength:"32" doc:"s0fs, which means snapfs here"`
	S3              map[string]any `json:"s3,omitempty" doc:"must be empty"`
	DefaultPosixUID *int64         `json:"default_posix_uid,omitempty" minimum:"0" maximum:"4294967294"`
	DefaultPosixGID *int64         `json:"default_posix_gid,omitempty" minimum:"0" maximum:"4294967294"`
	AccessMode      string         `json:"access_mode,omitempty" enum:"RWO,ROX,RWX"`
}

// ForkVolumeRequest makes a volume of the present state of another.
type ForkVolumeRequest struct {
	DefaultPosixUID *int64 `json:"default_posix_uid,omitempty" minimum:"0" maximum:"4294967294"`
	DefaultPosixGID *int64 `json:"default_posix_gid,omitempty" minimum:"0" maximum:"4294967294"`
	AccessMode      string `json:"access_mode,omitempty" enum:"RWO,ROX,RWX"`
}

// VolumeSnapshotRequest takes a snapshot of a volume.
type VolumeSnapshotRequest struct {
	Name        string `json:"name" maxLength:"1024"`
	Description string `json:"description,omitempty" maxLength:"4096"`
}

// VolumeSnapshot describes a snapshot of a volume.
type VolumeSnapshot struct {
	ID          string     `json:"id"`
	VolumeID    string     `json:"volume_id"`
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	SizeBytes   int64      `json:"size_bytes" doc:"of its layers' images, as far as they are stored"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

// Template describes a template.
type Template struct {
	TemplateID string         `json:"template_id"`
	Scope      string         `json:"scope" enum:"public,team"`
	TeamID     string         `json:"team_id,omitempty"`
	Spec       TemplateSpec   `json:"spec"`
	Status     TemplateStatus `json:"status"`
	CreatedAt  time.Time      `json:"created_at"`
	UpdatedAt  time.Time      `json:"updated_at"`
}

// TemplateSpec is what a template says of its sandboxes.
type TemplateSpec struct {
	Description string `json:"description,omitempty"`
	DisplayName string `json:"displayName,omitempty"`
}

// TemplateStatus says how far a template is.
type TemplateStatus struct {
	Creation TemplateCreation `json:"creation"`
}

// TemplateCreation says how far it is: here a template is ready when it is there.
type TemplateCreation struct {
	State       string    `json:"state" enum:"ready"`
	Stage       string    `json:"stage" enum:"reconciling"`
	CapturedAt  time.Time `json:"capturedAt"`
	CompletedAt time.Time `json:"completedAt"`
}

// TemplateList are all templates.
type TemplateList struct {
	Templates []Template `json:"templates"`
	Count     int        `json:"count"`
}

// TemplateRequest gives a snapshot that has no name the name of a template. The image of the container names the snapshot.
type TemplateRequest struct {
	TemplateID string         `json:"template_id" maxLength:"1024"`
	Spec       map[string]any `json:"spec"`
}

// TemplateFromSandboxRequest makes a template of the present state of a sandbox.
type TemplateFromSandboxRequest struct {
	TemplateID    string             `json:"template_id" maxLength:"1024"`
	SandboxID     string             `json:"sandbox_id" maxLength:"128"`
	SpecOverrides *TemplateOverrides `json:"spec_overrides,omitempty"`
}

// TemplateOverrides are what a template says in the place of its sandbox. Tags and Pool have no effect.
type TemplateOverrides struct {
	Description string         `json:"description,omitempty" maxLength:"4096"`
	DisplayName string         `json:"displayName,omitempty" maxLength:"1024"`
	Tags        []string       `json:"tags,omitempty"`
	Pool        map[string]any `json:"pool,omitempty"`
}
