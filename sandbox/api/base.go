package api

// BaseRequest asks what workspaces and snapshots stem from. Of one, that is the directory that it began with; of
// several, the newest state that all of them have below them.
type BaseRequest struct {
	Access
	Of []string `json:"of"`
	// Progress is told of the import that the call waits for.
	Progress func(Progress) `json:"-"`
}

// BaseResult is that state. Of several, Imported and Path are empty unless it is a directory as it was imported.
type BaseResult struct {
	// Snapshot is that state. If no snapshot was there, it is a new one without a name, which expires after a week.
	Snapshot Snapshot `json:"snapshot"`
	// Path is the directory that was imported, where the daemon sees it; "" if nothing was, or it is not known.
	Path    string `json:"path,omitempty"`
	RawPath []byte `json:"raw_path,omitempty"`
}
