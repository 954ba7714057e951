package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// projectName is the file beside a project that names its workspaces.
const projectName = "snapfs.toml"

// project is that file.
type project struct {
	Workspaces map[string]projectWorkspace `toml:"workspace"`

	path string
}

// projectWorkspace is one workspace of a project. Paths are relative to the file.
type projectWorkspace struct {
	From       string  `toml:"from"`       // as of 'snapfs create'
	Mountpoint string  `toml:"mountpoint"` // default: the name
	Options    string  `toml:"options"`    // as of -o
	Size       string  `toml:"size"`       // as of --size
	Inodes     string  `toml:"inodes"`     // as of --inodes
	Keep       *retain `toml:"keep"`
}

// retain says which snapshots are kept, as 'snapfs prune' does.
type retain struct {
	Last      int    `toml:"last"`
	Daily     int    `toml:"daily"`
	OlderThan string `toml:"older-than"`
}

// readProject reads a file; "" is that of this directory or of the nearest one above it that has one.
func readProject(path string) (project, error) {
	p := project{path: path}
	if path == "" {
		dir, err := os.Getwd()
		if err != nil {
			return p, err
		}
		var inside string
		if p.path, inside = findProject(dir, shownBySnapfs()); p.path == "" && inside != "" {
			return p, usagef("missing NAME: %s is in a workspace, and may be a copy: name it with --file", quote(inside))
		}
		if p.path == "" {
			return p, usagef("missing NAME: there is no %s here", projectName)
		}
		if err := trusted(p.path, os.Geteuid()); err != nil {
			return p, err
		}
	}
	var err error
	if p.path, err = filepath.Abs(p.path); err != nil {
		return p, err
	}
	text, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, failure(api.ErrNotFound, "%s does not exist", quote(p.path))
	}
	if err != nil {
		return p, err
	}
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, p.wrong(err)
	}
	if len(p.Workspaces) == 0 {
		return p, usagef("%s has no [workspace.NAME]", quote(p.path))
	}
	for _, name := range p.names() {
		if err := p.check(name); err != nil {
			return p, err
		}
	}
	return p, nil
}

// projectOf reads the file for a verb that names workspaces, or none; false if it is not named and has none of these.
func projectOf(path string, names []string) (p project, ok bool, err error) {
	if path == "" && len(names) > 0 {
		dir, err := os.Getwd()
		if err != nil {
			return p, false, nil
		}
		found, _ := findProject(dir, shownBySnapfs())
		if found == "" || trusted(found, os.Geteuid()) != nil { // what is named does without
			return p, false, nil
		}
	}
	if p, err = readProject(path); err != nil {
		return p, false, err
	}
	for _, name := range names {
		if _, ok := p.Workspaces[name]; !ok && path == "" {
			return p, false, nil
		} else if !ok {
			return p, false, usagef("%s has no [workspace.%s]", quote(p.path), name)
		}
	}
	return p, true, nil
}

// findProject finds the file in a directory or above it; "" if there is none. One on the file systems that are given is
// passed over, and told: a workspace that was made from a project has a copy of its file.
func findProject(dir string, except map[uint64]bool) (found, inside string) {
	for {
		path := filepath.Join(dir, projectName)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok || !except[st.Dev] {
				return path, inside
			}
			inside = cmp.Or(inside, path)
		}
		if dir == filepath.Dir(dir) {
			return "", inside
		}
		dir = filepath.Dir(dir)
	}
}

// shownBySnapfs are the devices of workspaces in the mount table of this process.
func shownBySnapfs() map[uint64]bool {
	found := map[uint64]bool{}
	text, _ := os.ReadFile("/proc/self/mountinfo") // without it, none is known
	for line := range strings.Lines(string(text)) {
		var major, minor uint32
		left, right, _ := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if _, ours := ofSnapfs(right); !ours || len(f) < 5 {
			continue
		}
		if _, err := fmt.Sscanf(f[2], "%d:%d", &major, &minor); err == nil {
			found[unix.Mkdev(major, minor)] = true
		}
	}
	return found
}

// trusted refuses a file that was found, not named, if another user than this one or root can have written it, or put
// it there.
func trusted(path string, euid int) error {
	dir := filepath.Dir(path)
	for _, p := range []string{path, dir} {
		for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
			info, err := stat(p)
			if err != nil {
				return err
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			link := info.Mode()&fs.ModeSymlink != 0
			sticky := p == dir && info.Mode()&fs.ModeSticky != 0
			if ok && (st.Uid == 0 || int(st.Uid) == euid) && (link || sticky || info.Mode().Perm()&0o002 == 0) {
				continue
			}
			return failure(api.ErrRefused, "%s can be from another user, who owns %s or may write there: read it, then name "+
				"it with --file, or name the workspaces", quote(path), quote(p))
		}
	}
	return nil
}

// wrong says in which lines a file is wrong.
func (p project) wrong(err error) error {
	var unknown *toml.StrictMissingError
	var syntax *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		var texts []string
		for _, e := range unknown.Errors {
			row, _ := e.Position()
			texts = append(texts, fmt.Sprintf("line %d: unknown key %s", row, strings.Join(e.Key(), ".")))
		}
		return usagef("%s: %s", quote(p.path), strings.Join(texts, "; "))
	case errors.As(err, &syntax):
		row, column := syntax.Position()
		return usagef("%s: line %d, column %d: %s", quote(p.path), row, column, strings.TrimPrefix(syntax.Error(), "toml: "))
	}
	return usagef("%s: %w", quote(p.path), err)
}

// names lists the workspaces of the file: one whose mountpoint is inside that of another comes after that.
func (p project) names() []string {
	return slices.SortedFunc(maps.Keys(p.Workspaces), func(a, b string) int {
		if d := len(p.mountpoint(a)) - len(p.mountpoint(b)); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
}

func (p project) mountpoint(name string) string {
	at := p.Workspaces[name].Mountpoint
	if at == "" {
		at = name
	}
	return p.relative(at)
}

func (p project) relative(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(filepath.Dir(p.path), path)
}

// check refuses what a workspace of the file cannot be.
func (p project) check(name string) error {
	if err := api.ValidWorkspaceName(name); err != nil {
		return usagef("%s: %w", quote(p.path), err)
	}
	if _, err := p.options(name); err != nil {
		return usagef("%s: workspace %s: %w", quote(p.path), name, err)
	}
	if _, err := p.quota(name); err != nil {
		return usagef("%s: workspace %s: %w", quote(p.path), name, err)
	}
	if _, _, err := p.prune(name); err != nil {
		return usagef("%s: workspace %s: keep: %w", quote(p.path), name, err)
	}
	return nil
}

func (p project) options(name string) (api.MountOptions, error) {
	o := mountOptions{MountOptions: api.MountOptions{Transport: "auto"}}
	if list := p.Workspaces[name].Options; list != "" {
		if err := o.read(list); err != nil {
			return o.MountOptions, err
		}
	}
	return o.MountOptions, o.check(false)
}

// quota has the limits of a workspace.
func (p project) quota(name string) (q api.Quota, err error) {
	w := p.Workspaces[name]
	if w.Size != "" {
		if err := (bytesize{&q.Size}).Set(w.Size); err != nil {
			return q, fmt.Errorf("size %q: %w", w.Size, err)
		}
	}
	if w.Inodes != "" {
		if err := (quantity{&q.Inodes}).Set(w.Inodes); err != nil {
			return q, fmt.Errorf("inodes %q: %w", w.Inodes, err)
		}
	}
	return q, nil
}

// source is what a workspace is made from: a path relative to the file if there is one or it looks like one, else a
// snapshot.
func (p project) source(name string) string {
	from := p.Workspaces[name].From
	if from == "" {
		return ""
	}
	if image, ok := imageSource(from, p.relative(".")); ok {
		return image
	}
	path := p.relative(from)
	if _, err := os.Lstat(path); err == nil || api.IsPath(from) {
		return path
	}
	return from
}

// prune is how the snapshots of a workspace are pruned; false if all are kept.
func (p project) prune(name string) (api.PruneRequest, bool, error) {
	keep := p.Workspaces[name].Keep
	if keep == nil {
		return api.PruneRequest{}, false, nil
	}
	r := api.PruneRequest{Workspace: name, KeepLast: keep.Last, KeepDaily: keep.Daily}
	if keep.OlderThan != "" {
		var err error
		if r.OlderThan, err = parseDuration(keep.OlderThan); err != nil {
			return r, false, fmt.Errorf("older-than %q: %w", keep.OlderThan, err)
		}
	}
	if r.KeepLast < 0 || r.KeepDaily < 0 || r.OlderThan < 0 {
		return r, false, errors.New("less than nothing cannot be kept")
	}
	if r.KeepLast == 0 && r.KeepDaily == 0 && r.OlderThan == 0 {
		return r, false, errors.New("last, daily or older-than is missing")
	}
	return r, true, nil
}
