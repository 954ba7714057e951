package layers

import (
	"fmt"
	"strings"

	"snapfs/squashfs"
)

// maxRedirect bounds the bytes of a redirect.
const maxRedirect = 4 << 20

// checkRedirect refuses what no overlay writes: a redirect is a name in the same directory, or a path from the layer's
// root whose elements are names. Layers may come from elsewhere.
func checkRedirect(r string) error {
	names, absolute := strings.CutPrefix(r, "/")
	bad := len(r) > maxRedirect || !absolute && strings.Contains(r, "/")
	for name := range strings.SplitSeq(names, "/") {
		bad = bad || checkName(name) != nil
	}
	if bad {
		return fmt.Errorf("%w: redirect %.100q of %d bytes", squashfs.ErrCorrupt, r, len(r))
	}
	return nil
}
