package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// levels gives the range of levels of each compression; {0, 0} for those without levels.
var levels = map[string][2]int{
	"none": {0, 0},
	"zstd": {1, 22},
	"gzip": {1, 9},
	"xz":   {0, 0},
	"lz4":  {1, 1},
}

func (a *app) exportCommand() *cobra.Command {
	r := api.ExportRequest{}
	tree := extraction{}
	backup := backupFlags{}
	image := imageFlags{}
	cmd := &cobra.Command{
		Use:   "export SNAP {FILE | --to DIR} [-- PATH...]",
		Short: "write a snapshot as an image, or into a directory",
		Long: `Writes the whole tree of a snapshot as one squashfs 4.0 image, which unsquashfs, squashfuse and the
kernel can read, or in another FORMAT, see below. The same tree gives the same bytes, whatever its history. FILE is replaced only
when the new image is complete. FILE - is standard output, unless that is a terminal; then what is
otherwise printed goes to standard error. The image is made in the home first, whose file system needs
room for it, and is not written before it is complete.

Without --compression, the image has the form in which the store keeps it: uncompressed, and fastest
to write. With --layer, only the topmost layer is written, with whiteouts and attributes as
overlayfs reads them.

` + imageExportHelp + `

Other readers of squashfs see times in whole seconds between 1970 and 2106, and no ACLs. snapfs keeps the rest
in a section that other readers ignore.

` + backupHelp + `

` + partHelp + `

` + extractHelp,
		Example: `  snapfs export before-upgrade app.sqsh
  snapfs export before-upgrade --to ./app
  snapfs export before-upgrade app.sqsh --compression zstd --level 19
  snapfs export before-upgrade app.sqsh --gitignore --exclude .git
  snapfs export before-upgrade /srv --format backup --ttl 24h
  snapfs export before-upgrade app.tar --format docker --tag app:one --cmd /bin/app`,
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			args, r.Paths = partArgs(cmd, args)
			if given, err := tree.check(cmd, args, slices.Concat(imageFlagNames, []string{"format", "compression", "level", "layer"})...); err != nil {
				return err
			} else if given {
				return tree.run(a, cmd, args[0], r.Part)
			}
			if len(args) < 2 {
				return usagef("missing FILE, or --to DIR")
			}
			if r.Backup, err = backup.options(cmd, r); err != nil {
				return err
			}
			if !cmd.Flags().Changed("compression") && r.Format == api.FormatTar {
				r.Compression = tarCompression(args[1])
			}
			if err := checkExport(r, cmd.Flags().Changed("level")); err != nil {
				return err
			}
			if isTar(args[1]) && !cmd.Flags().Changed("format") {
				return usagef("%s is the name of an archive, and the image would be squashfs: name the format (--format tar, "+
					"docker or oci; --format squashfs writes that all the same)", quote(args[1]))
			}
			if r.Image, err = image.options(cmd, r.Format); err != nil {
				return err
			}
			r.Access, r.Snapshot = a.access(), args[0]
			if args[1] == "-" {
				if f, ok := a.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
					return usagef("standard output is a terminal: send the image to a file or a program")
				}
				r.Writer = a.out
			} else if r.Path, err = absolute("FILE", args[1]); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				meter := a.newMeter()
				r.Progress = meter.report()
				got, err := c.Export(cmd.Context(), r)
				meter.done()
				if err != nil {
					return err
				}
				a.noteArchive(got)
				if r.Writer != nil {
					return a.exported(got)
				}
				if got.Backup != nil {
					return a.result(got, line(filepath.Dir(got.Path)))
				}
				return a.result(got, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s  %s  %s\n", got.Digest, size(got.Size), quote(got.Path))
					return err
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Format, "format", "squashfs", "`FORMAT` of the image: squashfs, tar, docker, oci or backup")
	f.StringVar(&r.Compression, "compression", "none", "`KIND`: none, zstd, gzip, xz or lz4; of container images that of the layers")
	f.IntVar(&r.Level, "level", 0,
		"`LEVEL` of the compression: zstd 1 to 22 (15 if not given), gzip 1 to 9 (9), lz4 1 (slower, smaller)")
	f.BoolVar(&r.Layer, "layer", false, "write only the topmost layer")
	image.flags(cmd)
	backup.flags(cmd)
	tree.flags(cmd)
	partFlags(cmd, &r.Part, between(1, "SNAP", "FILE"))
	return cmd
}

// exported reports, on standard error, what went to standard output.
func (a *app) exported(got api.ExportResult) error {
	if !a.json {
		a.note("%s  %s", got.Digest, size(got.Size))
		return nil
	}
	text, err := json.Marshal(got)
	if err == nil {
		_, err = fmt.Fprintf(a.err, "%s\n", text)
	}
	return err
}

// isTar reports whether a file is an archive by its name.
func isTar(name string) bool {
	name = strings.ToLower(name)
	for _, end := range []string{".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".zip"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// checkExport refuses options with which no image can be written.
func checkExport(r api.ExportRequest, levelGiven bool) error {
	archive := r.Format != api.FormatSquashfs && r.Format != api.FormatBackup
	if archive && !slices.Contains([]string{api.FormatTar, api.FormatDocker, api.FormatOCI}, r.Format) {
		return usagef("--format %q: one of squashfs, tar, docker, oci and backup", r.Format)
	}
	if archive && r.Layer {
		return usagef("--layer is for --format squashfs")
	}
	span, ok := levels[r.Compression]
	if ok && archive && (r.Compression == "xz" || r.Compression == "lz4") {
		return usagef("--compression %s is for --format squashfs", r.Compression)
	}
	if !ok {
		names := []string{}
		for name := range levels {
			names = append(names, name)
		}
		slices.Sort(names)
		return usagef("--compression %q: one of %v", r.Compression, names)
	}
	if levelGiven && span[1] == 0 {
		return usagef("--level %d: %s has no levels", r.Level, r.Compression)
	}
	if levelGiven && (r.Level < span[0] || r.Level > span[1]) {
		return usagef("--level %d: %s takes %d to %d", r.Level, r.Compression, span[0], span[1])
	}
	return nil
}
