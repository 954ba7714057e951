package sandbox

import (
	"context"
	"iter"

	"snapfs/sandbox/api"
)

// What the service speaks of is declared in package api, which a client can have without the rest; here it has the same
// names.

// API is the service, which [Home] implements.
type API = api.API

// What is asked and answered.
type (
	Access          = api.Access
	Part            = api.Part
	Progress        = api.Progress
	Workspace       = api.Workspace
	WorkspaceState  = api.WorkspaceState
	Snapshot        = api.Snapshot
	SnapshotState   = api.SnapshotState
	Layer           = api.Layer
	Import          = api.Import
	Ref             = api.Ref
	RefPayload      = api.RefPayload
	CreateRequest   = api.CreateRequest
	Resumption      = api.Resumption
	UpRequest       = api.UpRequest
	UpResult        = api.UpResult
	MountOptions    = api.MountOptions
	MountRequest    = api.MountRequest
	UnmountRequest  = api.UnmountRequest
	SnapshotRequest = api.SnapshotRequest
	RestoreRequest  = api.RestoreRequest
	ForkRequest     = api.ForkRequest
	RollbackRequest = api.RollbackRequest
	RollbackResult  = api.RollbackResult
	TurnRequest     = api.TurnRequest
	TurnResult      = api.TurnResult
	TurnPlace       = api.TurnPlace
	TurnsRequest    = api.TurnsRequest
	Turn            = api.Turn
	TurnStat        = api.TurnStat
	TurnPage        = api.TurnPage
	UndoRequest     = api.UndoRequest
	UndoResult      = api.UndoResult
	ApplyRequest    = api.ApplyRequest
	ApplyResult     = api.ApplyResult
	ApplyChange     = api.ApplyChange
	ApplyConflict   = api.ApplyConflict
	ApplyLeft       = api.ApplyLeft
	BaseRequest     = api.BaseRequest
	BaseResult      = api.BaseResult

	ConflictsRequest  = api.ConflictsRequest
	ConflictsResult   = api.ConflictsResult
	Read              = api.Read
	ReadsResult       = api.ReadsResult
	StaleRead         = api.StaleRead
	PauseRequest      = api.PauseRequest
	ListRequest       = api.ListRequest
	WorkspacePage     = api.WorkspacePage
	SnapshotPage      = api.SnapshotPage
	TokenRequest      = api.TokenRequest
	Token             = api.Token
	NewToken          = api.NewToken
	TokenPage         = api.TokenPage
	Scope             = api.Scope
	RefRequest        = api.RefRequest
	DestroyRequest    = api.DestroyRequest
	DestroyResult     = api.DestroyResult
	LocateRequest     = api.LocateRequest
	RenameRequest     = api.RenameRequest
	Quota             = api.Quota
	QuotaState        = api.QuotaState
	QuotaRequest      = api.QuotaRequest
	Object            = api.Object
	DiffRequest       = api.DiffRequest
	Change            = api.Change
	FileStat          = api.FileStat
	FilesRequest      = api.FilesRequest
	File              = api.File
	ExportRequest     = api.ExportRequest
	ExportResult      = api.ExportResult
	ImageOptions      = api.ImageOptions
	ExportedImage     = api.ExportedImage
	ExportedLayer     = api.ExportedLayer
	ExtractRequest    = api.ExtractRequest
	ExtractResult     = api.ExtractResult
	Skip              = api.Skip
	StatsRequest      = api.StatsRequest
	Stats             = api.Stats
	EventKind         = api.EventKind
	Event             = api.Event
	EventsRequest     = api.EventsRequest
	PruneRequest      = api.PruneRequest
	PruneResult       = api.PruneResult
	GCRequest         = api.GCRequest
	GCResult          = api.GCResult
	PinReason         = api.PinReason
	Pinned            = api.Pinned
	CheckRequest      = api.CheckRequest
	CheckResult       = api.CheckResult
	RebuildResult     = api.RebuildResult
	Problem           = api.Problem
	WorkFileRequest   = api.WorkFileRequest
	GetFileRequest    = api.GetFileRequest
	PutFileRequest    = api.PutFileRequest
	EditFileRequest   = api.EditFileRequest
	EditFileResult    = api.EditFileResult
	MakeDirRequest    = api.MakeDirRequest
	MoveFileRequest   = api.MoveFileRequest
	RemoveFileRequest = api.RemoveFileRequest
	GlobRequest       = api.GlobRequest
	GrepRequest       = api.GrepRequest
	GrepMatch         = api.GrepMatch
	SearchResult      = api.SearchResult
	WatchFilesRequest = api.WatchFilesRequest
	FileEventKind     = api.FileEventKind
	FileEvent         = api.FileEvent

	AgentSessionRequest  = api.AgentSessionRequest
	DocumentRequest      = api.DocumentRequest
	SaveDocumentRequest  = api.SaveDocumentRequest
	ListDocumentsRequest = api.ListDocumentsRequest
	Document             = api.Document
	DocumentPage         = api.DocumentPage
)

// Kinds of a document's scope.
const (
	AgentScope      = api.AgentScope
	MultiAgentScope = api.MultiAgentScope
)

// Classes of error; test with errors.Is.
var (
	ErrInvalid     = api.ErrInvalid
	ErrNotFound    = api.ErrNotFound
	ErrConflict    = api.ErrConflict
	ErrRefused     = api.ErrRefused
	ErrCorrupt     = api.ErrCorrupt
	ErrUnavailable = api.ErrUnavailable
)

// States of workspaces and of snapshots, and how Up came to a workspace.
const (
	Unmounted = api.Unmounted
	Mounted   = api.Mounted
	Detached  = api.Detached
	Sealed    = api.Sealed
	Stored    = api.Stored
	Importing = api.Importing
	Same      = api.Same
	Restored  = api.Restored
	Fresh     = api.Fresh
)

// Places of turns.
const (
	TurnPast    = api.TurnPast
	TurnCurrent = api.TurnCurrent
	TurnUndone  = api.TurnUndone
	TurnCut     = api.TurnCut
)

// StageWaiting is the stage of Progress in which a call waits for others of its kind to end.
const StageWaiting = api.StageWaiting

// StageImport is the stage of Progress in which a call waits until the directory of a workspace is in the store.
const StageImport = api.StageImport

// Formats of exports.
const (
	FormatSquashfs = api.FormatSquashfs
	FormatTar      = api.FormatTar
	FormatDocker   = api.FormatDocker
	FormatOCI      = api.FormatOCI
)

// Kinds of event.
const (
	EventCreated         = api.EventCreated
	EventMounted         = api.EventMounted
	EventUnmounted       = api.EventUnmounted
	EventSnapshotted     = api.EventSnapshotted
	EventStored          = api.EventStored
	EventImportStarted   = api.EventImportStarted
	EventImportEnded     = api.EventImportEnded
	EventImportFailed    = api.EventImportFailed
	EventSourceChanged   = api.EventSourceChanged
	EventRestored        = api.EventRestored
	EventBranched        = api.EventBranched
	EventForked          = api.EventForked
	EventRolledBack      = api.EventRolledBack
	EventApplied         = api.EventApplied
	EventPaused          = api.EventPaused
	EventResumed         = api.EventResumed
	EventSnapshotDeleted = api.EventSnapshotDeleted
	EventSnapshotExpired = api.EventSnapshotExpired
	EventDestroyed       = api.EventDestroyed
	EventRenamed         = api.EventRenamed
	EventQuota           = api.EventQuota
	EventCrossSession    = api.EventCrossSession
	EventDaemonCrashed   = api.EventDaemonCrashed
	EventRequestRefused  = api.EventRequestRefused
	EventTokenCreated    = api.EventTokenCreated
	EventTokenRevoked    = api.EventTokenRevoked
	EventCallRefused     = api.EventCallRefused
)

// Scopes of a token.
const (
	ScopeRead       = api.ScopeRead
	ScopeWrite      = api.ScopeWrite
	ScopeSnapshots  = api.ScopeSnapshots
	ScopeWorkspaces = api.ScopeWorkspaces
	ScopeMetrics    = api.ScopeMetrics

	FileCreated  = api.FileCreated
	FileModified = api.FileModified
	FileDeleted  = api.FileDeleted
	FileRenamed  = api.FileRenamed
	FileOverflow = api.FileOverflow
)

// Names that are the same everywhere.
const (
	DefaultSession = api.DefaultSession
	ProviderID     = api.ProviderID
	SocketName     = api.SocketName
)

// ValidWorkspaceName says what is wrong with the name of a workspace; ErrInvalid.
func ValidWorkspaceName(name string) error { return api.ValidWorkspaceName(name) }

// ValidSession says what is wrong with the id of a session; ErrInvalid.
func ValidSession(id string) error { return api.ValidSession(id) }

// ParseRef reads the JSON form of a ref, strictly. ErrInvalid if it is not one of snapfs or cannot be the ref of any
// snapshot.
func ParseRef(text string) (Ref, error) { return api.ParseRef(text) }

// AllWorkspaces ranges over the workspaces that a lists for r, over all pages; see [api.AllWorkspaces].
func AllWorkspaces(ctx context.Context, a API, r ListRequest) iter.Seq2[Workspace, error] {
	return api.AllWorkspaces(ctx, a, r)
}

// AllSnapshots ranges over the snapshots that a lists for r, over all pages; see [api.AllSnapshots].
func AllSnapshots(ctx context.Context, a API, r ListRequest) iter.Seq2[Snapshot, error] {
	return api.AllSnapshots(ctx, a, r)
}

// AllChanges ranges over what [API.Diff] reports; see [api.AllChanges].
func AllChanges(ctx context.Context, a API, r DiffRequest) iter.Seq2[Change, error] {
	return api.AllChanges(ctx, a, r)
}

// AllEvents ranges over what [API.Events] reports; see [api.AllEvents].
func AllEvents(ctx context.Context, a API, r EventsRequest) iter.Seq2[Event, error] {
	return api.AllEvents(ctx, a, r)
}
