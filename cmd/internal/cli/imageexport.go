package cli

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

// imageExportHelp says what else an export can write.
const imageExportHelp = `With --format tar, FILE is a tar file of the tree, compressed if it is called *.tar.gz or *.tar.zst.

With --format docker or oci, FILE is a container image, which 'docker load' or 'podman load' load: a
docker archive, or a tar file with an OCI layout. It has a layer for each layer of the image that the
workspace was made from, and one for each snapshot since; with --flatten, only one. Command,
variables, working directory, user and labels are those of that image, unless they are given. The
layers are written anew: those of the image have the same digest only if they were written as snapfs
writes them. Names that begin with .wh. cannot be in an image.`

// imageFlags are the flags of export that are about container images.
type imageFlags struct {
	o               api.ImageOptions
	cmd, entrypoint string
	labels          []string
}

// imageFlagNames are their names.
var imageFlagNames = []string{"tag", "flatten", "cmd", "entrypoint", "env", "workdir", "user", "label"}

func (i *imageFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&i.o.Tag, "tag", "", "`NAME:TAG` of the container image (default: none)")
	f.BoolVar(&i.o.Flatten, "flatten", false, "make the container image of one layer")
	f.StringVar(&i.cmd, "cmd", "", "`COMMAND` that the image runs: a JSON list of words, or a line for /bin/sh")
	f.StringVar(&i.entrypoint, "entrypoint", "", "`COMMAND` of which --cmd gives the arguments, as with --cmd")
	f.StringArrayVar(&i.o.Env, "env", nil, "`NAME=VALUE` of a variable of the image; may be given several times")
	f.StringVar(&i.o.Workdir, "workdir", "", "working `DIR` of the image")
	f.StringVar(&i.o.User, "user", "", "`USER[:GROUP]` that runs the image")
	f.StringArrayVar(&i.labels, "label", nil, "`NAME=VALUE` of a label of the image; may be given several times")
}

// options gives what the flags say; nil for a format that has no use for them.
func (i *imageFlags) options(cmd *cobra.Command, format string) (*api.ImageOptions, error) {
	if format != api.FormatDocker && format != api.FormatOCI {
		for _, name := range imageFlagNames {
			if cmd.Flags().Changed(name) {
				return nil, usagef("--%s is for --format docker or oci", name)
			}
		}
		return nil, nil
	}
	var err error
	if i.o.Cmd, err = words(cmd, "cmd", i.cmd); err != nil {
		return nil, err
	}
	if i.o.Entrypoint, err = words(cmd, "entrypoint", i.entrypoint); err != nil {
		return nil, err
	}
	for _, e := range i.o.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return nil, usagef("--env %q: it is NAME=VALUE", e)
		}
	}
	for _, l := range i.labels {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, usagef("--label %q: it is NAME=VALUE", l)
		}
		if i.o.Labels == nil {
			i.o.Labels = map[string]string{}
		}
		i.o.Labels[name] = value
	}
	return &i.o, nil
}

// words reads a command as a Dockerfile has it: a JSON list, or a line for a shell; nil if it is not given.
func words(cmd *cobra.Command, flag, text string) ([]string, error) {
	if !cmd.Flags().Changed(flag) {
		return nil, nil
	}
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		list := []string{}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, usagef("--%s %q: no JSON list of words: %w", flag, text, err)
		}
		return list, nil
	}
	if text == "" {
		return []string{}, nil
	}
	return []string{"/bin/sh", "-c", text}, nil
}

// tarCompression is how a tar file is compressed by its name.
func tarCompression(name string) string {
	name = strings.ToLower(name)
	switch {
	case strings.HasSuffix(name, ".gz"), strings.HasSuffix(name, ".tgz"):
		return "gzip"
	case strings.HasSuffix(name, ".zst"):
		return "zstd"
	}
	return "none"
}

// noteArchive says what an export of a tar file or a container image could not keep.
func (a *app) noteArchive(got api.ExportResult) {
	if got.Lost > 0 {
		a.note("left out, because a tar file cannot hold them: sockets, or attributes with impossible names (%d)", got.Lost)
	}
	if got.Image == nil {
		return
	}
	base, same := 0, 0
	for _, l := range got.Image.Layers {
		if l.Base != "" {
			base++
		}
		if l.Base == l.DiffID {
			same++
		}
	}
	a.note("image %s, layers: %d", got.Image.ID, len(got.Image.Layers))
	if base > 0 {
		a.note("layers of the base image that have the digest that they had: %d of %d", same, base)
	}
}
