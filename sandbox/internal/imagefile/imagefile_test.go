package imagefile

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

type object = map[string]any

// layoutDir is an OCI layout that a test makes.
type layoutDir struct {
	t   testing.TB
	dir string
}

func newLayout(t testing.TB) layoutDir {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755))
	return layoutDir{t, dir}
}

func (l layoutDir) blob(data []byte) (digest string) {
	sum := sha256.Sum256(data)
	require.NoError(l.t, os.WriteFile(filepath.Join(l.dir, "blobs/sha256", hex.EncodeToString(sum[:])), data, 0o644))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (l layoutDir) descriptor(kind string, data []byte) object {
	return object{"mediaType": kind, "digest": l.blob(data), "size": len(data)}
}

func (l layoutDir) json(kind string, v any) object {
	text, err := json.Marshal(v)
	require.NoError(l.t, err)
	return l.descriptor(kind, text)
}

// Media types of Docker and of OCI.
var (
	dockerTypes = [4]string{
		"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json",
		"application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar.gzip",
	}
	ociTypes = [4]string{
		"application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json",
		"application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar",
	}
)

// image adds an image for a platform, of one layer.
func (l layoutDir) image(kinds [4]string, arch, variant string, layer []byte, packed []byte) object {
	sum := sha256.Sum256(layer)
	config := l.json(kinds[2], object{
		"architecture": arch, "variant": variant, "os": "linux", "config": object{"Cmd": []string{arch + variant}},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	m := l.json(kinds[0], object{
		"schemaVersion": 2, "mediaType": kinds[0], "config": config, "layers": []object{l.descriptor(kinds[3], packed)},
	})
	m["platform"] = object{"os": "linux", "architecture": arch, "variant": variant}
	return m
}

func (l layoutDir) index(manifests ...object) string {
	text, err := json.Marshal(object{"schemaVersion": 2, "manifests": manifests})
	require.NoError(l.t, err)
	require.NoError(l.t, os.WriteFile(filepath.Join(l.dir, ociIndex), text, 0o644))
	return l.dir
}

func named(d object, name string) object {
	d["annotations"] = object{refName: name}
	return d
}

func smallTar(t testing.TB, name, text string) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644, Typeflag: tar.TypeReg}))
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func open(t testing.TB, dir, ref, platform string) (*Image, error) {
	im, err := Open(Options{Kind: api.OCILayout, Path: dir, Ref: ref, Platform: platform})
	if err == nil {
		t.Cleanup(func() { require.NoError(t, im.Close()) })
	}
	return im, err
}

func drain(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }

// TestPlatforms chooses among images for several platforms, in an index in an index, with the types of OCI and of Docker.
func TestPlatforms(t *testing.T) {
	for name, kinds := range map[string][4]string{"docker": dockerTypes, "oci": ociTypes} {
		t.Run(name, func(t *testing.T) {
			l := newLayout(t)
			data := smallTar(t, "f", "f")
			var list []object
			for _, p := range [][2]string{{"amd64", ""}, {"arm64", "v8"}, {"arm", "v6"}, {"arm", "v7"}} {
				list = append(list, l.image(kinds, p[0], p[1], data, data))
			}
			notes := l.image(kinds, "unknown", "", data, data) // what a build tool says of the others
			notes["platform"] = object{"os": "unknown", "architecture": "unknown"}
			inner := l.json(kinds[1], object{"schemaVersion": 2, "mediaType": kinds[1], "manifests": append(list, notes)})
			dir := l.index(named(inner, "many"))
			for platform, want := range map[string]string{
				"linux/amd64": "amd64", "linux/arm64": "arm64v8", "linux/arm64/v8": "arm64v8", "linux/arm/v7": "armv7", "linux/arm/v6": "armv6",
			} {
				im, err := open(t, dir, "many", platform)
				require.NoError(t, err)
				require.Equal(t, []string{want}, im.Config.Config.Cmd)
				require.NoError(t, im.Layers[0].Read(context.Background(), nil, drain))
			}
			for platform, class := range map[string]error{
				"linux/riscv64": api.ErrNotFound, "linux/arm": api.ErrConflict, "arm": api.ErrInvalid, "linux//v8": api.ErrInvalid,
			} {
				_, err := open(t, dir, "", platform)
				require.ErrorIs(t, err, class, platform)
			}
			digest := list[3]["digest"].(string)
			im, err := open(t, dir, "@"+digest, "")
			require.NoError(t, err)
			require.Equal(t, []string{"armv7"}, im.Config.Config.Cmd)
			_, err = open(t, dir, "none", "")
			require.ErrorIs(t, err, api.ErrNotFound)
			require.ErrorContains(t, err, "many")
		})
	}
}

// TestHostile opens layouts that are made to do harm, or damaged.
func TestHostile(t *testing.T) {
	defer func(was int64) { freeBytes = was }(freeBytes)
	freeBytes = 1 << 20
	data := smallTar(t, "f", "f")
	zeros := func(n int64) []byte {
		var buf bytes.Buffer
		w, err := zstd.NewWriter(&buf, zstd.WithEncoderConcurrency(1))
		require.NoError(t, err)
		_, err = io.CopyN(w, zeroReader{}, n)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return buf.Bytes()
	}
	for name, c := range map[string]struct {
		make  func(l layoutDir) string
		class error
		says  string
	}{
		"a missing blob": {func(l layoutDir) string {
			m := l.image(ociTypes, "amd64", "", data, data)
			require.NoError(t, os.Remove(filepath.Join(l.dir, "blobs/sha256", strings.TrimPrefix(l.blob(data), "sha256:"))))
			return l.index(m)
		}, api.ErrCorrupt, "missing"},
		"a blob that is a link": {func(l layoutDir) string {
			m := l.image(ociTypes, "amd64", "", data, data)
			at := filepath.Join(l.dir, "blobs/sha256", strings.TrimPrefix(l.blob(data), "sha256:"))
			require.NoError(t, os.Rename(at, at+".x"))
			require.NoError(t, os.Symlink(at+".x", at))
			return l.index(m)
		}, api.ErrInvalid, "symbolic link"},
		"another size": {func(l layoutDir) string {
			m := l.image(ociTypes, "amd64", "", data, data)
			m["size"] = 7
			return l.index(m)
		}, api.ErrCorrupt, "7"},
		"another manifest": {func(l layoutDir) string {
			m := l.image(ociTypes, "amd64", "", data, data)
			at := filepath.Join(l.dir, "blobs/sha256", strings.TrimPrefix(m["digest"].(string), "sha256:"))
			text, err := os.ReadFile(at)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(at, bytes.Replace(text, []byte(`"schemaVersion":2`), []byte(`"schemaVersion":3`), 1), 0o644))
			return l.index(m)
		}, api.ErrCorrupt, "digest"},
		"another layer": {func(l layoutDir) string {
			return l.index(l.image(ociTypes, "amd64", "", data, smallTar(t, "f", "g")))
		}, api.ErrCorrupt, "diff-id"},
		"an index in itself, as it were": {func(l layoutDir) string {
			d := l.image(ociTypes, "amd64", "", data, data)
			for range maxDepth + 2 {
				d = l.json(ociTypes[1], object{"schemaVersion": 2, "manifests": []object{d}})
			}
			return l.index(d)
		}, api.ErrInvalid, "deep"},
		"no image": {func(l layoutDir) string {
			m := l.json(ociTypes[0], object{"schemaVersion": 2, "config": l.json("application/vnd.cncf.helm.config.v1+json", object{})})
			return l.index(m)
		}, api.ErrInvalid, "no container image"},
		"a digest that is a path": {func(l layoutDir) string {
			m := l.image(ociTypes, "amd64", "", data, data)
			m["digest"] = "sha256:../../../etc/passwd"
			return l.index(m)
		}, api.ErrCorrupt, ""},
		"no document": {func(l layoutDir) string {
			l.index()
			require.NoError(t, os.WriteFile(filepath.Join(l.dir, ociIndex), []byte("{"), 0o644))
			return l.dir
		}, api.ErrCorrupt, ociIndex},
		"a large document": {func(l layoutDir) string {
			l.index()
			require.NoError(t, os.Truncate(filepath.Join(l.dir, ociIndex), maxDocument+1))
			return l.dir
		}, api.ErrInvalid, "bytes"},
		"a bomb": {func(l layoutDir) string {
			return l.index(l.image(ociTypes, "amd64", "", data, zeros(100<<20)))
		}, api.ErrInvalid, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLayout(t)
			im, err := open(t, c.make(l), "", "")
			if err == nil {
				err = im.Layers[0].Read(context.Background(), nil, drain)
			}
			require.ErrorIs(t, err, c.class)
			require.ErrorContains(t, err, c.says)
		})
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestWriter has the libraries of others check what is written, and reads it.
func TestWriter(t *testing.T) {
	one, two := smallTar(t, "a", "a"), smallTar(t, "b", strings.Repeat("b", 5000))
	for _, docker := range []bool{true, false} {
		for _, compression := range []string{None, Gzip, Zstd} {
			t.Run(fmt.Sprint(docker, compression), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "image.tar")
				f, err := os.Create(path)
				require.NoError(t, err)
				w := NewWriter(f, compression, 0)
				for _, data := range [][]byte{one, two, one} {
					_, err := w.Layer("test", func(to io.Writer) error { _, err := to.Write(data); return err })
					require.NoError(t, err)
				}
				config := Config{OS: "linux", Architecture: "amd64", Config: v1.Config{Cmd: []string{"run"}}}
				id, err := w.Finish(docker, config, time.Unix(1000, 0).UTC(), "name:tag")
				require.NoError(t, err)
				require.NoError(t, f.Close())
				kind := api.OCIArchive
				if docker {
					kind = api.DockerArchive
				}
				im, err := Open(Options{Kind: kind, Path: path, Ref: "name:tag", Platform: "linux/amd64"})
				require.NoError(t, err)
				defer im.Close()
				require.Equal(t, id, im.ID)
				require.Len(t, im.Layers, 3)
				for i, want := range [][]byte{one, two, one} {
					require.NoError(t, im.Layers[i].Read(context.Background(), nil, func(r io.Reader) error {
						got, err := io.ReadAll(r)
						require.Equal(t, want, got)
						return err
					}))
				}
				if compression != Gzip {
					return // that library takes all layers for compressed with gzip
				}
				if docker {
					other, err := tarball.ImageFromPath(path, nil)
					require.NoError(t, err)
					require.NoError(t, validate.Image(other))
					return
				}
				dir := t.TempDir()
				require.NoError(t, untar(path, dir))
				p, err := layout.FromPath(dir)
				require.NoError(t, err)
				index, err := p.ImageIndex()
				require.NoError(t, err)
				require.NoError(t, validate.Index(index))
			})
		}
	}
}

// untar unpacks an archive.
func untar(path, dir string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, h.Name)
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return err
		}
	}
}

func TestValidTag(t *testing.T) {
	for _, tag := range []string{"", "a", "a:b", "localhost/a:1", "localhost:5000/a/b-c_d.e:V1.0", "docker.io/library/x"} {
		require.NoError(t, ValidTag(tag), tag)
	}
	for _, tag := range []string{":a", "A:b", "a:", "a b", "a:-b", "/a", "a//b", strings.Repeat("a", 300)} {
		require.ErrorIs(t, ValidTag(tag), api.ErrInvalid, tag)
	}
}

// FuzzOpen opens anything as an archive of each kind.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "image.tar")
	for _, docker := range []bool{true, false} {
		file, err := os.Create(path)
		require.NoError(f, err)
		w := NewWriter(file, None, 0)
		_, err = w.Layer("test", func(to io.Writer) error { _, err := to.Write(smallTar(f, "a", "a")); return err })
		require.NoError(f, err)
		_, err = w.Finish(docker, Config{OS: "linux", Architecture: "amd64"}, time.Unix(1000, 0).UTC(), "name:tag")
		require.NoError(f, err)
		require.NoError(f, file.Close())
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "image.tar")
		require.NoError(t, os.WriteFile(path, data, 0o644))
		for _, kind := range []string{api.DockerArchive, api.OCIArchive} {
			im, err := Open(Options{Kind: kind, Path: path})
			if err != nil {
				continue
			}
			for _, l := range im.Layers {
				_ = l.Read(context.Background(), nil, drain) // whatever comes of it
			}
			require.NoError(t, im.Close())
		}
	})
}

// TestMountInLayout holds that no mount in a layout is entered: it may be one that this process serves.
func TestMountInLayout(t *testing.T) {
	l := newLayout(t)
	tarFile := smallTar(t, "file", "text")
	l.index(l.image(ociTypes, "amd64", "", tarFile, tarFile))
	_, err := open(t, l.dir, "", "")
	require.NoError(t, err)
	blobs := filepath.Join(l.dir, "blobs")
	require.NoError(t, unix.Mount(blobs, blobs, "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(blobs, 0)) })
	_, err = open(t, l.dir, "", "")
	require.ErrorIs(t, err, api.ErrInvalid)
}
