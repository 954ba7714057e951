package main

import (
	"io"
	"path/filepath"
	"strings"
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
func mountHelper(args []string, in io.Reader, errOut io.Writer) int {
	line, err := helperLine(args)
	if err != nil {
		(&app{err: errOut}).printError(err)
		return helperUsage
	}
	if line == nil {
		return exitDone
	}
	switch run(line, in, io.Discard, errOut) {
	case exitDone:
		return exitDone
	case exitUsage:
		return helperUsage
	}
	return helperFailed
}

// helperLine translates "NAME DIR [-fnsv] [-o OPTIONS] [-t TYPE] [-N NAMESPACE]", as mount(8) calls its helpers, to a line of this
// program; nil if nothing is to be done.
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
		return nil, usagef("%s NAME DIR [-o OPTIONS]", helperName)
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
			flags = append(flags, "--read-only")
		case option == "rw":
			flags = append(flags, "--read-only=false")
		case option == "nosuid", option == "nodev", option == "noexec", option == "noatime", option == "writeback":
			flags = append(flags, "--"+option)
		case option == "suid", option == "dev", option == "exec", option == "atime":
			flags = append(flags, "--no"+option+"=false")
		case strings.HasPrefix(option, "x-"), strings.HasPrefix(name, "comment"), forOthers[option]:
		case sloppy:
		default:
			return nil, usagef("unknown mount option %q", option)
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
