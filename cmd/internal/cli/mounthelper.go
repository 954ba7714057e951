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

// helperWords lists the mount options without a value.
const helperWords = "ro, rw, suid, nosuid, dev, nodev, exec, noexec, atime, noatime, writeback, allow_suid, allow_dev"

// helperHelp is the manual page of the helper.
const helperHelp = `mount.fuse.snapfs mounts a workspace of snapfs for mount(8) and /etc/fstab.
It returns when the mount is live.

Usage:
  mount -t fuse.snapfs NAME DIR [-o OPTIONS]
  mount.fuse.snapfs NAME DIR [-fnsv] [-o OPTIONS]

NAME is the workspace. The last element of DIR is created if it is missing. The daemon of the home is started if it is
needed. 'umount DIR' unmounts. In /etc/fstab: NAME DIR fuse.snapfs noatime,nofail 0 0

Options:
  home=DIR                  the home (else SNAPFS_HOME, else /var/lib/snapfs)
  session=ID                the session that owns the workspace (else SNAPFS_SESSION, else default)
  transport=auto|uring|dev  how requests travel
  engine=auto|fuse          there is one engine
  ` + helperWords + `

A tree that comes from an image is mounted nosuid and nodev, unless allow_suid or allow_dev is given. suid and dev are
not enough: mount(8) does not pass them on.

Options of mount(8) itself (defaults, auto, user, nofail, _netdev, x-...) and relatime, lazytime and allow_other are
accepted and ignored. Other options are an error; with -s they are ignored.

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
			// with a value, so that the verb that follows is not taken for one
			flags = append(flags, "--read-only=true")
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
			return nil, usagef("unknown mount option %q: there are home=, session=, transport=, engine=, %s, "+
				"and the options of mount(8) itself", option, helperWords)
		}
	}
	return flags, nil
}

// forOthers are options that mount(8) and other readers of /etc/fstab act upon, or that always hold here.
var forOthers = map[string]bool{
	"": true, "defaults": true, "auto": true, "noauto": true, "user": true, "nouser": true, "users": true,
	"owner": true, "group": true, "_netdev": true, "nofail": true, "async": true, "relatime": true, "norelatime": true,
	"diratime": true, "nodiratime": true, "strictatime": true, "lazytime": true, "nolazytime": true, "loud": true,
	"silent": true, "allow_other": true, "default_permissions": true,
}
