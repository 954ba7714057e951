package cli

import (
	"fmt"
	"os"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// homeDirs are the home directories of the user: what HOME says, and what the system says, if that belongs to the user.
func homeDirs() ([]string, error) {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err == nil {
		home, err = filepath.Abs(home)
	}
	if err != nil {
		return nil, err
	}
	u, err := osuser.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return []string{home}, nil // a user without a name
	}
	real, err := filepath.EvalSymlinks(u.HomeDir)
	if err != nil || real == "/" {
		return []string{home}, nil // there is none
	}
	if fi, err := os.Stat(real); err == nil && fi.IsDir() {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Getuid() { // not one of the system
			return []string{home, real}, nil
		}
	}
	return []string{home}, nil
}

// outermost leaves out what lies in another one of the paths.
func outermost(paths []string) []string {
	slices.Sort(paths)
	var out []string
	for _, path := range paths {
		if !slices.ContainsFunc(out, func(dir string) bool { return within(path, dir) }) {
			out = append(out, path)
		}
	}
	return out
}

// snapfsHomes are the homes of snapfs that may have a daemon which the user can talk to: used is that of this command.
func snapfsHomes(used string) []string {
	dirs := []string{used, "/var/lib/snapfs"}
	if home := os.Getenv("SNAPFS_HOME"); home != "" {
		dirs = append(dirs, home)
	}
	if data := os.Getenv("XDG_DATA_HOME"); data != "" {
		dirs = append(dirs, filepath.Join(data, "snapfs"))
	}
	var found []string
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // it does not exist
		}
		if real, err = filepath.Abs(real); err == nil && real != "/" {
			found = append(found, real)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// hideHomes has the command see nothing of the user's home directories but the workspace, and, read-only, what PATH names
// there and what is asked for.
func (i *inside) hideHomes(homes, show []string) error {
	i.Homes = outermost(homes)
	var want []string
	for _, path := range show {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err != nil {
			return fmt.Errorf("--show %s: %w", quote(path), err)
		}
		want = append(want, real)
	}
	for _, path := range filepath.SplitList(os.Getenv("PATH")) {
		if real, err := filepath.EvalSymlinks(path); err == nil && filepath.IsAbs(real) {
			want = append(want, real)
		}
	}
	slices.Sort(want)
	for _, path := range want {
		covered := slices.ContainsFunc(i.Shown, func(dir string) bool { return within(path, dir) })
		inHome := slices.ContainsFunc(homes, func(home string) bool { return within(path, home) })
		hasHome := slices.ContainsFunc(homes, func(home string) bool { return within(home, path) })
		if covered || !inHome || hasHome || within(path, i.Path) {
			continue
		}
		if fi, err := os.Stat(path); err == nil && fi.IsDir() {
			i.Shown = append(i.Shown, path)
		}
	}
	return nil
}
