package cli

import (
	"io"
	"path/filepath"
	"strings"

	"snapfs/sandbox/api"
)

// helperName is the name by which mount(8) runs this program for 'mount -t fuse.snapfs' and for lines of /etc/fstab.
const helperName = "mount.fuse.snapfs"

// What mount(8) makes of a helper's end.
const (
	helperUsage  = 1
	helperFailed = 32
)

// isHelper reports whether the program was called as mount's helper.
func isHelper(argv0 string) bool { return filepath.Base(argv0) == helperName }

// mountHelper is the program under helperName: it mounts by the verb of that name and returns when the mount is live.
func (p Program) mountHelper(args []string, in io.Reader, out, errOut io.Writer) int {
	for _, arg := range args {
		switch arg {
		case "-h", "--help":
			return helperSays(out, helperHelp)
		case "-V", "--version":
			return helperSays(out, helperName+" "+p.Version+"\n")
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

// helperSays prints what was asked for instead of a mount.
func helperSays(out io.Writer, text string) int {
	if _, err := io.WriteString(out, text); err != nil {
		return helperFailed
	}
	return api.ExitDone
}

// helperWords are the options of a mount that have no value.
const helperWords = "ro, rw, suid, nosuid, dev, nodev, exec, noexec, atime, noatime, writeback, allow_suid, allow_dev"

// helperHelp is the manual of the helper.
const helperHelp = `mount.fuse.snapfs mounts a workspace of snapfs for mount(8) and /etc/fstab, and returns when the mount is live.

Usage:
  mount -t fuse.snapfs NAME DIR [-o OPTIONS]
  mount.fuse.snapfs NAME DIR [-fnsv] [-o OPTIONS]

NAME is the workspace; DIR is made if only its last element is missing. The daemon of the home is started if need be.
'umount DIR' unmounts. In /etc/fstab: NAME DIR fuse.snapfs noatime,nofail 0 0

Options:
  home=DIR                 of the home (else SNAPFS_HOME, else /var/lib/snapfs)
  session=ID               that owns the workspace (else SNAPFS_SESSION, else default)
  transport=auto|uring|dev how requests travel
  engine=auto|fuse         there is one engine
  ` + helperWords + `
  a tree that comes from an image is nosuid and nodev without allow_suid and allow_dev; of suid and dev mount(8) does not tell
  those of mount(8) itself (defaults, auto, user, nofail, _netdev, x-...) and relatime, lazytime, allow_other
Others are an error, or with -s ignored.

Flags:
  -f  only look at the options   -n, -v  nothing   -s  ignore options that are not known
  -h, --help   -V, --version

Exit codes:
    0  done
    1  usage: an option or a flag
   32  the mount failed: standard error says why
`

// helperLine translates "NAME DIR [-fnsv] [-o OPTIONS] [-t TYPE] [-N NAMESPACE]", as mount(8) calls its helpers, to a
// line of this program; nil if nothing is to be done.
func helperLine(args []string) ([]string, error) {
	var names, options []string
	fake, sloppy := false, false
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
			sloppy = true
		case "-o", "-t", "-N":
			if len(args) == 0 {
				return nil, usagef("%s needs a value", arg)
			}
			if arg == "-o" {
				options = append(options, strings.Split(args[0], ",")...)
			}
			if arg == "-N" {
				return nil, usagef("-N: snapfs mounts in the mount namespace of its daemon")
			}
			args = args[1:]
		default:
			return nil, usagef("unknown flag %s", arg)
		}
	}
	if len(names) != 2 {
		return nil, usagef("usage: %s NAME DIR [-o OPTIONS]", helperName)
	}
	line := []string{"--quiet"}
	flags, err := helperFlags(options, sloppy)
	if err != nil || fake {
		return nil, err
	}
	return append(append(line, flags...), "mount", "--", names[0], names[1]), nil
}

// helperFlags translates mount options.
func helperFlags(options []string, sloppy bool) ([]string, error) {
	var flags []string
	for _, option := range options {
		name, value, given := strings.Cut(option, "=")
		switch {
		case given && (name == "transport" || name == "home" || name == "session"):
			flags = append(flags, "--"+name+"="+value)
		case given && name == "engine":
			if value != "auto" && value != "fuse" {
				return nil, usagef("engine=%s: auto or fuse", value)
			}
		case option == "ro":
			flags = append(flags, "--read-only=true") // the verb comes next: it must not be taken for a value
		case option == "rw":
			flags = append(flags, "--read-only=false")
		case option == "suid", option == "dev", option == "allow_suid", option == "allow_dev":
			option = strings.TrimPrefix(option, "allow_")
			flags = append(flags, "--no"+option+"=false", "--"+option+"=true")
		case option == "nosuid", option == "nodev": // the last one counts
			flags = append(flags, "--"+option[2:]+"=false", "--"+option+"=true")
		case option == "noexec", option == "noatime", option == "writeback":
			flags = append(flags, "--"+option+"=true")
		case option == "exec", option == "atime":
			flags = append(flags, "--no"+option+"=false")
		case strings.HasPrefix(option, "x-"), strings.HasPrefix(name, "comment"), forOthers[option]:
		case sloppy:
		default:
			return nil, usagef("unknown mount option %q: there are home=, session=, transport=, engine=, %s, and those of mount(8) itself", option, helperWords)
		}
	}
	return flags, nil
}

// forOthers are options that mount(8) and those who read /etc/fstab act upon, or that are as they are here.
var forOthers = map[string]bool{
	"": true, "defaults": true, "auto": true, "noauto": true, "user": true, "nouser": true, "users": true, "owner": true, "group": true,
	"_netdev": true, "nofail": true, "async": true, "relatime": true, "norelatime": true, "diratime": true, "nodiratime": true,
	"strictatime": true, "lazytime": true, "nolazytime": true, "loud": true, "silent": true, "allow_other": true, "default_permissions": true,
}
