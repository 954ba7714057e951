package imagefile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"snapfs/sandbox/api"
)

// dockerManifest names the images of a docker archive.
const dockerManifest = "manifest.json"

// dockerImage is one image in it.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// openDocker finds an image of a docker archive.
func (im *Image) openDocker(ref string) error {
	text, err := document(im.blobs, dockerManifest)
	if err != nil {
		return err
	}
	var images []dockerImage
	if err := parse(text, dockerManifest, &images); err != nil {
		return err
	}
	var tags []string
	var found []dockerImage
	for _, d := range images {
		tags = append(tags, d.RepoTags...)
		if ref == "" || slices.ContainsFunc(d.RepoTags, func(tag string) bool { return sameTag(tag, ref) }) ||
			strings.HasPrefix(ref, "@") && strings.Contains(d.Config, strings.TrimPrefix(ref, "@sha256:")) {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return choose(len(found), ref, tags)
	}
	d := found[0]
	if text, err = document(im.blobs, d.Config); err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	im.ID = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
	// The name of the file is its digest, so far as it looks like one.
	base := strings.TrimSuffix(d.Config[strings.LastIndexByte(d.Config, '/')+1:], ".json")
	if len(base) == len(im.ID.Hex) && isHex(base) && base != im.ID.Hex {
		return fmt.Errorf("%w: the configuration %s is not what its digest says", api.ErrCorrupt, api.Quoted(d.Config))
	}
	diffIDs, err := im.Config.parse(text)
	if err != nil {
		return err
	}
	var layers []*Layer
	for _, name := range d.Layers[:min(len(d.Layers), maxLayers+1)] {
		bl, err := im.blobs.find(name)
		if err != nil {
			return err
		}
		layers = append(layers, &Layer{blob: bl, digest: digestInName(name)})
	}
	return im.addLayers(diffIDs, layers)
}

// digestInName is the digest that the name of a blob tells; other names, those with ids of layers, tell none.
func digestInName(name string) *v1.Hash {
	if digest, ok := strings.CutPrefix(clean(name), "blobs/sha256/"); ok && len(digest) == 64 && isHex(digest) {
		return &v1.Hash{Algorithm: "sha256", Hex: digest}
	}
	return nil
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// sameTag reports whether a tag is what a word means: tags may have the name of a registry in front.
func sameTag(tag, word string) bool {
	if !strings.Contains(word[strings.LastIndexByte(word, '/')+1:], ":") {
		word += ":latest"
	}
	return tag == word || strings.HasSuffix(tag, "/"+word)
}

// choose says which images there are, if not one was meant.
func choose(found int, ref string, names []string) error {
	const most = 20
	list := "they have no names"
	if len(names) > 0 {
		quoted := make([]string, 0, most)
		for _, n := range names[:min(len(names), most)] {
			quoted = append(quoted, api.Quoted(n))
		}
		list = strings.Join(quoted, ", ")
		if len(names) > most {
			list += ", …"
		}
	}
	switch {
	case found == 0 && ref == "":
		return fmt.Errorf("%w: there is no image in it", api.ErrInvalid)
	case found == 0:
		return fmt.Errorf("%w: it has no image %s: %s", api.ErrNotFound, api.Quoted(ref), list)
	case ref == "":
		return fmt.Errorf("%w: it has %d images: name one behind the path, as in PATH:TAG: %s", api.ErrConflict, found, list)
	}
	return fmt.Errorf("%w: it has %d images %s", api.ErrConflict, found, api.Quoted(ref))
}

// tagForm is what a name of an image looks like: parts divided by slashes, and a tag.
var tagForm = regexp.MustCompile(
	`^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$`)

// ValidTag is an error of class api.ErrInvalid for what cannot be the name of an image; "" is none.
func ValidTag(tag string) error {
	if tag != "" && (len(tag) > 255 || !tagForm.MatchString(tag)) {
		return fmt.Errorf("%w: name %s of an image: it is NAME:TAG, in small letters but for the tag", api.ErrInvalid,
			api.Quoted(tag))
	}
	return nil
}
