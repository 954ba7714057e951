package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// made is when what tests make for images was changed last.
var made = time.Unix(1600000000, 123456789)

// entry is one of a layer's tar file.
type entry struct {
	tar.Header
	data string
}

func file(name, data string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, data}
}

func directory(name string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}}
}

func hardLink(name, to string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o644}}
}

func symbolicLink(name, to string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}}
}

func (e entry) with(change func(h *tar.Header)) entry {
	change(&e.Header)
	return e
}

// tarOf makes a tar file.
func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := e.Header
		h.Format = tar.FormatPAX
		if h.ModTime.IsZero() {
			h.ModTime = made
		}
		h.Size = int64(len(e.data))
		require.NoError(t, w.WriteHeader(&h), h.Name)
		_, err := w.Write([]byte(e.data))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// packed compresses a blob.
func packed(t testing.TB, kind string, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	switch kind {
	case "gzip":
		w := gzip.NewWriter(&buf)
		_, err := w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	case "zstd":
		w, err := zstd.NewWriter(&buf)
		require.NoError(t, err)
		_, err = w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	default:
		return data
	}
	return buf.Bytes()
}

type object = map[string]any

// testImage is a container image that a test makes.
type testImage struct {
	tag      string
	arch     string // default: amd64
	config   object
	layers   [][]byte // tar files
	compress string   // "", gzip or zstd
}

func (i testImage) configFile() object {
	ids := []string{}
	for _, l := range i.layers {
		ids = append(ids, "sha256:"+digest(l))
	}
	config, arch := i.config, i.arch
	if config == nil {
		config = object{}
	}
	if arch == "" {
		arch = "amd64"
	}
	return object{
		"architecture": arch, "os": "linux", "config": config, "rootfs": object{"type": "layers", "diff_ids": ids},
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

// dockerArchive makes what 'docker save' did for years.
func dockerArchive(t testing.TB, path string, images ...testImage) string {
	t.Helper()
	var entries []entry
	var list []object
	had := map[string]bool{}
	for _, i := range images {
		config := encode(t, i.configFile())
		name := digest(config) + ".json"
		entries = append(entries, file(name, string(config)))
		layers := []string{}
		for _, l := range i.layers {
			blob := digest(l) + "/layer.tar"
			layers = append(layers, blob)
			if !had[blob] {
				had[blob] = true
				entries = append(entries, file(blob, string(packed(t, i.compress, l))))
			}
		}
		list = append(list, object{"Config": name, "RepoTags": []string{i.tag}, "Layers": layers})
	}
	entries = append(entries, file("manifest.json", string(encode(t, list))))
	require.NoError(t, os.WriteFile(path, tarOf(t, entries...), 0o644))
	return path
}

// ociLayout makes the files of an OCI layout.
func ociLayout(t testing.TB, images ...testImage) []entry {
	t.Helper()
	entries := []entry{file("oci-layout", `{"imageLayoutVersion":"1.0.0"}`)}
	had := map[string]bool{}
	add := func(kind string, data []byte) object {
		name := digest(data)
		if !had[name] {
			had[name] = true
			entries = append(entries, file("blobs/sha256/"+name, string(data)))
		}
		return object{"mediaType": kind, "digest": "sha256:" + name, "size": len(data)}
	}
	index := []object{}
	for _, i := range images {
		layers := []object{}
		for _, l := range i.layers {
			kind := "application/vnd.oci.image.layer.v1.tar"
			if i.compress != "" {
				kind += "+" + i.compress
			}
			layers = append(layers, add(kind, packed(t, i.compress, l)))
		}
		config := add("application/vnd.oci.image.config.v1+json", encode(t, i.configFile()))
		m := add("application/vnd.oci.image.manifest.v1+json", encode(t, object{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": layers,
		}))
		m["platform"] = object{"os": "linux", "architecture": i.configFile()["architecture"]}
		if i.tag != "" {
			m["annotations"] = object{"org.opencontainers.image.ref.name": i.tag}
		}
		index = append(index, m)
	}
	return append(entries, file("index.json", string(encode(t, object{"schemaVersion": 2, "manifests": index}))))
}
