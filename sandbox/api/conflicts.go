package api

// ConflictsRequest asks what would be in conflict if both A and B, workspaces or snapshots that stem from the snapshot
// Base, were applied to one target.
type ConflictsRequest struct {
	Access
	Base string `json:"base"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// ConflictsResult are the conflicts, in which B is the target.
type ConflictsResult struct {
	Conflicts []ApplyConflict `json:"conflicts"`
	// Merged counts the files with lines of both sides.
	Merged int `json:"merged"`
}
