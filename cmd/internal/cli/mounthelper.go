package cli

import (
	"io"
	"path/filepath"
	"strings"

	"snapfs/sandbox/api"
)

// helperName is the name under which mount(8) runs this program for 'mount -t fuse.snapfs' and lines of /etc/fstab.
const helperName = "mount.fuse.snapfs"

// Exit codes of a helper, as mount(8) interprets them.
const (
	helperUsage  = 1
	helperFailed = 32
)

// isHelper reports whether the program was called as mount's helper.
func isHelper(argv0 string) bool { return filepath.Base(argv0) == helperName }

// mountHelper is the program under helperName: it runs the verb mount and returns when the mount is live.
func (p Program) mountHelper(args []string, in io.Reader, out, errOut io.Writer) int {
	for _, arg := range args {
		switch arg {
		case "-h", "--help":
			return helperPrint(out, helperHelp)
		case "-V", "--version":
			return helperPrint(out, helperName+" "+p.Version+"\n")
		}
	}
	line, err := helperLine(args)
	if err != nil {
		(&app{err: errOut}).printError(err)
		return helperUsage
	}
	if line == nil {
		return api.ExitDone
	}
	switch p.run(line, in, io.Discard, errOut) {
	case api.ExitDone:
		return api.ExitDone
	case api.ExitInvalid:
		return helperUsage
	}
	return helperFailed
}

// helperPrint prints the help or the version.
func helperPrint(out io.Writer, text string) int {
	if _, err := io.WriteString(out, text); err != nil {
		return helperFailed
	}
	return api.ExitDone
}

// helperHelp is the manual page of the helper.
var helperHelp = `mount.fuse.snapfs mounts a workspace or a snapshot of snapfs for mount(8) and /etc/fstab.
It returns when the mount is live.

Usage:
  mount -t fuse.snapfs NAME DIR [-o OPTIONS]
  mount.fuse.snapfs NAME DIR [-fnsv] [-o OPTIONS]

NAME is the workspace, or with -o ro a snapshot, as in 'snapfs mount --read-only'. The last element of DIR is created if it is missing. The daemon of the home is started if it is
needed. 'umount DIR' unmounts. In /etc/fstab: NAME DIR fuse.snapfs noatime,nofail 0 0

Options:
  home=DIR                  the home (else SNAPFS_HOME, else /var/lib/snapfs)
  session=ID                the session that owns the workspace (else SNAPFS_SESSION, else default)
  transport=auto|uring|dev  how requests travel
  engine=fuse|kernel|auto   what shows the workspace, kept with it: 'snapfs help mount'
  ` + mountOptionWords + `
  remount                   change the mount that is at DIR: remount,ro

A tree that comes from an image is mounted nosuid and nodev, unless allow_suid or allow_dev is given. suid and dev are
not enough: mount(8) does not pass them on.

Options of mount(8) itself (defaults, auto, user, nofail, _netdev, x-...), relatime and lazytime are accepted and
ignored. Other options are an error; with -s they are ignored.

Flags:
  -f             only check the options
  -s             ignore unknown options
  -n, -v         ignored
  -h, --help     print this text
  -V, --version  print the version

Exit codes:
    0  done
    1  usage: wrong option or flag
   32  the mount failed: standard error says why
`

// helperLine translates "NAME DIR [-fnsv] [-o OPTIONS] [-t TYPE] [-N NAMESPACE]", as mount(8) calls its helpers, to
// arguments of snapfs. It returns nil if there is nothing to do.
func helperLine(args []string) ([]string, error) {
	var names, lists []string
	fake := false
	options := mountOptions{helper: true}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			names = append(names, arg)
			continue
		}
		switch arg {
		case "-n", "-v":
		case "-f":
			fake = true
		case "-s":
			options.sloppy = true
		case "-o", "-t", "-N":
			if len(args) == 0 {
				return nil, usagef("%s needs a value", arg)
			}
			if arg == "-o" {
				lists = append(lists, args[0])
			}
			if arg == "-N" {
				return nil, usagef("-N: run mount in that namespace instead: nsenter --mount=...")
			}
			args = args[1:]
		default:
			return nil, usagef("unknown flag %s", arg)
		}
	}
	if len(names) != 2 {
		return nil, usagef("usage: %s NAME DIR [-o OPTIONS]", helperName)
	}
	if err := options.read(strings.Join(lists, ",")); err != nil || fake {
		return nil, err
	}
	line := []string{"mount", "--quiet"}
	if options.home != "" {
		line = append(line, "--home="+options.home)
	}
	if options.session != "" {
		line = append(line, "--session="+options.session)
	}
	if len(options.taken) > 0 {
		line = append(line, "--options="+strings.Join(options.taken, ","))
	}
	if options.remount { // mount(8) has the name from its table: the directory says what is meant
		dir, err := filepath.Abs(names[1])
		if err != nil {
			return nil, usagef("%s: %w", quote(names[1]), err)
		}
		names = []string{dir, dir}
	}
	return append(line, "--", names[0], names[1]), nil
}
