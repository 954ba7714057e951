package httpapi

import (
	"fmt"
	"regexp"

	"snapfs/sandbox/api"
)

// maxPath bounds the path of a file, in bytes: PATH_MAX.
const maxPath = 4096

// anyID is what an id of some service may look like. One that is not in the grammar of ours names nothing.
var anyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$`)

// unknown is the error of an id that names nothing, and could not.
func unknown(what, id string) error {
	if anyID.MatchString(id) {
		return fmt.Errorf("%w: %s %s", api.ErrNotFound, what, id)
	}
	return fmt.Errorf("%w: id of a %s: %s", api.ErrInvalid, what, api.Quoted(id))
}

// checkWorkspace refuses what is not the name of a workspace: a path of the host above all.
func checkWorkspace(what, id string) error {
	if api.ValidWorkspaceName(id) != nil {
		return unknown(what, id)
	}
	return nil
}

// checkSnapshot refuses what is not the id of a snapshot.
func checkSnapshot(id string) error {
	if !api.IsID(id) {
		return unknown("snapshot", id)
	}
	return nil
}

// checkTemplate refuses what cannot be the name of a template: the name of a snapshot, with its workspace or not, or an id.
func checkTemplate(id string) error {
	if api.IsID(id) {
		return nil
	}
	if workspace, name, ok := api.SplitRef(id); ok {
		if err := api.ValidWorkspaceName(workspace); err != nil {
			return err
		}
		return api.ValidSnapshotName(name)
	}
	if id == "" {
		return fmt.Errorf("%w: the template is missing", api.ErrInvalid)
	}
	return api.ValidSnapshotName(id)
}

// checkPath refuses what is no path of a file; what a path leads to is for the service to say.
func checkPath(path string) error {
	if path == "" || len(path) > maxPath {
		return fmt.Errorf("%w: path: 1 to %d bytes, got %d", api.ErrInvalid, maxPath, len(path))
	}
	return nil
}
