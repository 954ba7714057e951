package chunkstore

import (
	"path"
	"strings"
)

// orderKey is the key by which new chunks without a base are sorted into blocks, so that similar chunks lie side by
// side: extension, then base name, then path. Extensions are compared without case; "" (metadata) sorts first.
func orderKey(p string) string {
	base := path.Base(p)
	if p == "" {
		return ""
	}
	return strings.ToLower(path.Ext(base)) + "\x00" + base + "\x00" + p
}
