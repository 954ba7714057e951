// Mkman makes the manual pages of the command out of its help: one of section 1 for it and for each verb, and one of
// section 8 for the helper of mount(8). They are compressed.
//
//	mkman [-version V] DIR
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"snapfs/cmd/internal/cli"
)

func main() {
	version := flag.String("version", "devel", "the version that the pages are of")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: mkman [-version V] DIR")
		os.Exit(2)
	}
	if err := write(flag.Arg(0), *version); err != nil {
		fmt.Fprintln(os.Stderr, "mkman:", err)
		os.Exit(1)
	}
}

// write makes the pages of a version in dir.
func write(dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := cli.Manual(version)
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		if cmd != root && !cmd.IsAvailableCommand() {
			continue
		}
		var page bytes.Buffer
		header := doc.GenManHeader{Section: "1", Source: "snapfs " + version, Manual: "snapfs"}
		if err := doc.GenMan(cmd, &header, &page); err != nil {
			return err
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1.gz"
		if err := compress(filepath.Join(dir, name), page.Bytes()); err != nil {
			return err
		}
	}
	return compress(filepath.Join(dir, "mount.fuse.snapfs.8.gz"), helper(version))
}

// helper is the page of mount's helper: its help as it is.
func helper(version string) []byte {
	text := strings.ReplaceAll(cli.HelperManual(), `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	title, body, _ := strings.Cut(text, "\n")
	return fmt.Appendf(nil, ".TH MOUNT.FUSE.SNAPFS 8 \"\" \"snapfs %s\" snapfs\n.SH NAME\nmount.fuse.snapfs \\- helper of mount(8)\n"+
		".SH DESCRIPTION\n%s\n.nf\n%s.fi\n", version, title, body)
}

// compress writes a file with gzip, the same bytes for the same page.
func compress(path string, page []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(page)
		err = errors.Join(err, z.Close())
	}
	return errors.Join(err, f.Close())
}
