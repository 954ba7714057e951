package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

// sourceHelp lists what a workspace can be made from.
const sourceHelp = `  a directory      it is imported: read once and stored; when it is imported again, only what has
                   changed is read (on ext4, xfs, btrfs and f2fs)
  an image file    a squashfs image named *.sqsh, *.squashfs or *.sqfs
  a backup         a directory with data.sqsh and meta.json, as 'export --format backup' writes
                   it, or that meta.json
  a tar file       as it is, or compressed with gzip or zstd
  docker-archive:FILE[:TAG]
                   a container image, as 'docker save' and 'podman save' write it
  oci-archive:FILE[:TAG], oci:DIR[:TAG]
                   a container image in an OCI layout, as a tar file or a directory; @DIGEST
                   in the place of :TAG names it by its digest
  a snapshot       its id, name or ref`

// platformFlag adds --platform.
func platformFlag(cmd *cobra.Command, platform *string) {
	cmd.Flags().StringVar(platform, "platform", "",
		"`OS/ARCH[/VARIANT]` of a container image that there are several of (default: that of this machine)")
}

// imageSource makes the path in the source of a container image absolute; false if a word is none. It is one if it has a
// slash, or if there is such a file: else it may be the ref of a snapshot.
func imageSource(word, dir string) (string, bool) {
	kind, rest, ok := api.SplitImage(word)
	if !ok {
		return "", false
	}
	path := rest
	if !strings.HasPrefix(path, "/") {
		path = dir + "/" + rest
	}
	if !strings.ContainsRune(rest, '/') && !someBegins(path) {
		return "", false
	}
	return kind + ":" + path, true
}

// someBegins reports whether there is a file whose path a word begins with, up to its end or to a : or @ in its last part.
func someBegins(word string) bool {
	dir, base := filepath.Split(word)
	for i := len(base); i > 0; i-- {
		if i < len(base) && base[i] != ':' && base[i] != '@' {
			continue
		}
		if _, err := os.Stat(dir + base[:i]); err == nil {
			return true
		}
	}
	return false
}
