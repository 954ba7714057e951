package cli

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// placeHelp is what the help of verbs says of a path in a snapshot or a workspace.
const placeHelp = `SNAP is a snapshot, or a workspace, of which the present state is shown. PATH is a path in its tree.
With a slash before it, SNAP ends at the first ":/": app:built:/src is src in snapshot built of
workspace app, and app:/src is src in what the workspace holds now. Without the slash each colon may
be the one before PATH; if it can be read in two ways that both exist, it is refused. A whole tree is
SNAP or SNAP:/. Symbolic links are followed inside the tree only, whose root is their root, too. No
mount is needed.`

func (a *app) lsCommand() *cobra.Command {
	var r api.FilesRequest
	var long bool
	cmd := &cobra.Command{
		Use:   "ls [SNAP[:PATH]]",
		Short: "list a directory of a snapshot or a workspace",
		Long: `Lists what is in a directory, sorted by name, or a file itself. Without an argument, lists the
workspaces as 'snapfs list' does.

` + placeHelp + `

-l also prints type and permissions, links, owner and group as numbers, size in bytes and time of
modification. Names are printed as 'snapfs diff' prints them.`,
		Example:     "  snapfs ls app:built:/\n  snapfs ls -l app:/\n  snapfs ls -R built --json",
		Args:        between(0, "SNAP:PATH"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				list := a.listCommand()
				list.SetContext(cmd.Context())
				return list.RunE(list, nil)
			}
			r.Access, r.Ref = a.access(), args[0]
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				w := bufio.NewWriterSize(a.out, 1<<16)
				err := a.listFiles(cmd.Context(), w, c, r, long)
				return errors.Join(err, w.Flush())
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&long, "long", "l", false, "print more of each file")
	f.BoolVarP(&r.Recursive, "recursive", "R", false, "list what is in directories, too, with paths")
	return cmd
}

// listFiles prints files as they come. Standard output stays empty if the request is refused.
func (a *app) listFiles(ctx context.Context, w *bufio.Writer, c api.API, r api.FilesRequest, long bool) error {
	open, between := `{"files":[`, ""
	err := c.Files(ctx, r, func(f api.File) error {
		if !a.json {
			return printFile(w, f, long)
		}
		text, err := json.Marshal(f)
		if err == nil {
			_, err = fmt.Fprintf(w, "%s%s\n%s", open, between, text)
		}
		open, between = "", ","
		return err
	})
	if err == nil && a.json {
		fmt.Fprintf(w, "%s]}\n", open)
	}
	return err
}

func printFile(w io.Writer, f api.File, long bool) error {
	name := quote(f.Path)
	if !long {
		_, err := fmt.Fprintln(w, name)
		return err
	}
	if f.Mode&unix.S_IFMT == unix.S_IFLNK {
		name += " -> " + quote(f.Target)
	}
	size := fmt.Sprint(f.Size)
	if t := f.Mode & unix.S_IFMT; t == unix.S_IFCHR || t == unix.S_IFBLK {
		size = fmt.Sprintf("%d,%d", unix.Major(f.Device), unix.Minor(f.Device))
	}
	_, err := fmt.Fprintf(w, "%s %3d %5d %5d %10s %s %s\n",
		modeText(f.Mode), f.Links, f.UID, f.GID, size, moment(f.Modified), name)
	return err
}

// modeText spells a mode as ls(1) does.
func modeText(mode uint32) string {
	types := map[uint32]byte{
		unix.S_IFDIR: 'd', unix.S_IFLNK: 'l', unix.S_IFCHR: 'c', unix.S_IFBLK: 'b', unix.S_IFIFO: 'p', unix.S_IFSOCK: 's',
	}
	text := []byte("-rwxrwxrwx")
	if t, ok := types[mode&unix.S_IFMT]; ok {
		text[0] = t
	}
	for i := range 9 {
		if mode&(1<<(8-i)) == 0 {
			text[i+1] = '-'
		}
	}
	for i, special := range []struct {
		bit uint32
		set byte
	}{{unix.S_ISUID, 's'}, {unix.S_ISGID, 's'}, {unix.S_ISVTX, 't'}} {
		if at := 3 * (i + 1); mode&special.bit != 0 {
			if text[at] == 'x' {
				text[at] = special.set
			} else {
				text[at] = special.set - 'a' + 'A'
			}
		}
	}
	return string(text)
}

func (a *app) catCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cat SNAP:PATH...",
		Short: "print files of a snapshot or a workspace",
		Long: `Prints the contents of regular files, one after the other.

` + placeHelp + `

With --json, prints one document for each file, with its contents in base64 under "data".`,
		Example:     "  snapfs cat app:built:/Makefile\n  snapfs cat app:/Makefile",
		Args:        cobra.MinimumNArgs(1),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				for _, place := range args {
					if err := a.printContents(cmd.Context(), c, place); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// printContents prints a file. As JSON, nothing is printed before the first byte or the end.
func (a *app) printContents(ctx context.Context, c api.API, place string) error {
	r := api.FilesRequest{Access: a.access(), Ref: place}
	if !a.json {
		_, err := c.ReadFile(ctx, r, a.out)
		return err
	}
	open := &opening{w: a.out, text: `{"data":"`}
	enc := base64.NewEncoder(base64.StdEncoding, open)
	f, err := c.ReadFile(ctx, r, enc)
	if err == nil {
		err = enc.Close()
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(f)
	if err == nil {
		_, err = open.Write([]byte(`","file":` + string(text) + "}\n"))
	}
	return err
}

// opening writes a text before what is written first.
type opening struct {
	w    io.Writer
	text string
}

// Write implements io.Writer.
func (o *opening) Write(p []byte) (int, error) {
	if o.text != "" {
		if _, err := io.WriteString(o.w, o.text); err != nil {
			return 0, err
		}
		o.text = ""
	}
	return o.w.Write(p)
}

func (a *app) cpCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "cp [-r] SNAP:PATH TARGET",
		Short: "copy a file or a directory out of a snapshot or a workspace",
		Long: `Copies a regular file to the host. TARGET is its new name, or a directory that it is put into. It is
replaced only when the copy is complete. The copy is the caller's, and has the permissions and the
time of modification of the file, but no setuid and setgid bits.

With -r, copies a directory with all that is in it. If TARGET exists, the copy gets the last name of
PATH in it. The daemon writes, as for 'snapfs restore --to': with owners, attributes and all, and the
same command continues what was interrupted. Nothing is written outside of the copy.

` + placeHelp,
		Example: "  snapfs cp app:built:/Makefile ./Makefile.built\n  snapfs cp -r app:built:/ ./before",
		Args:    exact("SNAP:PATH", "TARGET"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt,
			api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "-" {
				return usagef("TARGET - is no file: 'snapfs cat' prints files")
			}
			target, err := copyTarget(args[0], args[1])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				if recursive {
					return (&extraction{}).write(cmd.Context(), a, c, api.ExtractRequest{Tree: args[0], Path: target})
				}
				f, err := a.copyFile(cmd.Context(), c, args[0], target)
				if errors.Is(err, api.ErrInvalid) && strings.Contains(err.Error(), "is a directory") {
					return fmt.Errorf("%w: -r copies it", err)
				}
				if err != nil {
					return err
				}
				return a.result(f, line(quote(target)))
			})
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy a directory")
	return cmd
}

// copyTarget is where a copy goes: into target, if that is a directory.
func copyTarget(place, target string) (string, error) {
	abs, err := absolute("TARGET", target)
	if err != nil {
		return "", err
	}
	if fi, err := os.Stat(abs); err != nil || !fi.IsDir() {
		switch _, pathErr := os.Lstat(filepath.Dir(abs)); {
		case strings.HasSuffix(target, "/") && err != nil:
			return "", failure(api.ErrNotFound, "directory %s does not exist", quote(abs))
		case pathErr != nil && strings.Contains(target, ":"):
			return "", usagef("TARGET %s: there is no such directory, and nothing can be copied into a workspace that is "+
				"not mounted: mount it and use cp(1)", quote(target))
		}
		return abs, nil
	}
	name := strings.TrimRight(place, "/")
	name = name[strings.LastIndexAny(name, "/:")+1:]
	if strings.HasSuffix(place, ":/") || name == "" || name == "." || name == ".." || !strings.Contains(place, ":") {
		return "", usagef("%s exists, and %s has no last name for a copy in it: name the copy", quote(abs), quote(place))
	}
	return filepath.Join(abs, name), nil
}

// copyFile writes a file beside the target, and gives it its name when it is complete.
func (a *app) copyFile(ctx context.Context, c api.API, place, target string) (f api.File, err error) {
	tmp, err := os.CreateTemp(filepath.Dir(target), ".snapfs-cp-")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return f, failure(api.ErrNotFound, "directory %s does not exist", quote(filepath.Dir(target)))
		}
		return f, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // the first error is the one to tell
		}
	}()
	f, err = c.ReadFile(ctx, api.FilesRequest{Access: a.access(), Ref: place}, tmp)
	if err == nil {
		err = tmp.Chmod(fs.FileMode(f.Mode & 0o777))
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return f, err
	}
	if err := os.Chtimes(tmp.Name(), time.Time{}, f.Modified); err != nil {
		return f, err
	}
	return f, os.Rename(tmp.Name(), target)
}
