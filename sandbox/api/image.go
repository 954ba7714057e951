package api

import "strings"

// Kinds of files with container images, as they are written before a path in a source.
const (
	DockerArchive = "docker-archive" // a tar file, as 'docker save' and 'podman save' write it
	OCIArchive    = "oci-archive"    // a tar file with an OCI layout
	OCILayout     = "oci"            // a directory with an OCI layout
)

// SplitImage divides a source KIND:PATH[:TAG] or KIND:PATH[@DIGEST], in which rest is the path and what follows it. False
// if it is none.
func SplitImage(source string) (kind, rest string, ok bool) {
	kind, rest, ok = strings.Cut(source, ":")
	if !ok || rest == "" || kind != DockerArchive && kind != OCIArchive && kind != OCILayout {
		return "", "", false
	}
	return kind, rest, true
}

// Formats of exports.
const (
	FormatSquashfs = "squashfs"
	FormatTar      = "tar"
	FormatDocker   = "docker" // a docker archive: DockerArchive
	FormatOCI      = "oci"    // an OCI archive: OCIArchive
)

// ImageOptions say how a container image is run that an export makes. What is not given is as in the image that the
// workspace was made from.
type ImageOptions struct {
	Tag        string            `json:"tag,omitempty"`        // NAME:TAG; "" is none
	Flatten    bool              `json:"flatten,omitempty"`    // one layer
	Entrypoint []string          `json:"entrypoint,omitempty"` // without Cmd, the image has no arguments any more
	Cmd        []string          `json:"cmd,omitempty"`
	Env        []string          `json:"env,omitempty"` // NAME=VALUE, beside those that there are
	Workdir    string            `json:"workdir,omitempty"`
	User       string            `json:"user,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"` // beside those that there are
}

// ExportedImage says which image an export has written.
type ExportedImage struct {
	ID     string          `json:"id"`     // digest of the configuration, by which engines know it
	Layers []ExportedLayer `json:"layers"` // the lowest first
}

// ExportedLayer is one layer of such an image.
type ExportedLayer struct {
	DiffID string `json:"diff_id"`
	Size   int64  `json:"size"` // as a tar file
	// Base is the diff-id that the layer had in the image that the workspace was made from; "" if it is none of that. Equal to
	// DiffID, it is the same layer for engines, too.
	Base     string `json:"base,omitempty"`
	Snapshot string `json:"snapshot,omitempty"` // the newest snapshot that the layer is of
}
