package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"snapfs/sandbox/api"
)

// mountOptionWords lists the mount options without a value.
var mountOptionWords = strings.Join(api.MountWords(), ", ")

// mountOptions are options as mount(8), lines of /etc/fstab and -o have them, in their order: of two that contradict
// each other, the last one counts.
type mountOptions struct {
	api.MountOptions

	remount       bool
	taken         []string // all that are about the mount, in their order
	home, session string   // of the list; "" if it does not say
	sloppy        bool     // unknown options are ignored
	helper        bool     // home= and session= are known
}

// read takes the options of a list that is separated by commas.
func (o *mountOptions) read(list string) error {
	words := strings.Split(list, ",")
	o.remount = o.remount || slices.Contains(words, "remount")
	for _, option := range words {
		if err := o.readOne(option); err != nil {
			return err
		}
	}
	return nil
}

func (o *mountOptions) readOne(option string) error {
	name, value, given := strings.Cut(option, "=")
	switch {
	case o.Apply(option):
		o.taken = append(o.taken, option)
		if name == "transport" && checkTransport(value) != nil {
			return usagef("transport=%s: auto, uring or dev", value)
		}
		if name == "engine" && (value == "" || checkEngine(value) != nil) {
			return usagef("engine=%s: fuse, kernel or auto", value)
		}
	case given && name == "home" && o.helper:
		o.home = value
	case given && name == "session" && o.helper:
		o.session = value
	case option == "remount": // noted by read
		o.taken = append(o.taken, option)
	case strings.HasPrefix(option, "x-"), strings.HasPrefix(name, "comment"), forOthers[option]:
	case o.remount && ofKernel[name]: // mount(8) repeats what the mount has
	case o.sloppy:
	case o.helper:
		return usagef("unknown mount option %q: there are home=, session=, transport=, engine=, remount, %s, "+
			"and the options of mount(8) itself", option, mountOptionWords)
	default:
		return usagef("unknown mount option %q: there are transport=, engine=, remount, %s", option, mountOptionWords)
	}
	return nil
}

// forOthers are options that mount(8) and other readers of /etc/fstab act upon, or that always hold here.
var forOthers = map[string]bool{
	"": true, "defaults": true, "auto": true, "noauto": true, "user": true, "nouser": true, "users": true,
	"owner": true, "group": true, "_netdev": true, "nofail": true, "async": true, "relatime": true, "norelatime": true,
	"diratime": true, "nodiratime": true, "strictatime": true, "lazytime": true, "nolazytime": true, "loud": true,
	"silent": true, "default_permissions": true,
}

// ofKernel are options that the mount table shows of a FUSE mount.
var ofKernel = map[string]bool{
	"fd": true, "rootmode": true, "user_id": true, "group_id": true, "max_read": true, "blksize": true,
}

// optionList is the flag -o. It may be repeated.
type optionList struct{ o *mountOptions }

var _ pflag.Value = optionList{}

// Set implements pflag.Value, as the next two do.
func (l optionList) Set(s string) error { return l.o.read(s) }

func (l optionList) String() string {
	if l.o == nil {
		return ""
	}
	return strings.Join(l.o.taken, ",")
}

func (optionList) Type() string { return "LIST" }

// mountFlags adds the flags of a mount. What -o says and what the others say takes effect in their order.
func mountFlags(cmd *cobra.Command, o *mountOptions) {
	f := cmd.Flags()
	f.VarP(optionList{o}, "options", "o", "mount options: a `LIST` as mount(8) has it, such as ro,nosuid,noatime")
	f.StringVar(&o.Transport, "transport", "auto", "how requests travel, `KIND`: auto, uring or dev")
	engineFlag(cmd, &o.Engine)
	f.BoolVar(&o.ReadOnly, "read-only", false, "refuse writes; as -o ro")
	f.BoolVar(&o.NoSUID, "nosuid", false, "ignore setuid and setgid bits")
	f.BoolVar(&o.NoDev, "nodev", false, "ignore device files")
	trustFlags(cmd, &o.MountOptions)
	f.BoolVar(&o.NoExec, "noexec", false, "refuse to run programs")
	f.BoolVar(&o.NoAtime, "noatime", false,
		"set noatime in the mount table; reads never update access times in any case")
	f.BoolVar(&o.TrackReads, "track-reads", false,
		"record what programs read, for 'snapfs apply'; later mounts go on with it ('snapfs help reads')")
	f.BoolVar(&o.Writeback, "writeback", false,
		"keep writes in the kernel until close, fsync or some seconds later; a snapshot lacks them until then")
	f.BoolVar(&o.AllowOther, "allow-other", false,
		"let other users into what a user mounts; needs user_allow_other in /etc/fuse.conf")
}

// mountFlagNames are the flags of a mount.
var mountFlagNames = []string{
	"options", "transport", "engine", "read-only", "nosuid", "nodev", "suid", "dev", "noexec", "noatime", "writeback", "allow-other",
	"track-reads",
}

// engineFlag adds the flag that names the engine of a workspace.
func engineFlag(cmd *cobra.Command, engine *string) {
	cmd.Flags().StringVar(engine, "engine", "",
		"what shows the workspace, `ENGINE`: fuse, kernel or auto; kept with it ('snapfs help mount')")
}

// trustFlags adds the flags that honour setuid programs and device files of a foreign tree.
func trustFlags(cmd *cobra.Command, o *api.MountOptions) {
	cmd.Flags().BoolVar(&o.SUID, "suid", false, "honour setuid and setgid bits of a foreign tree, too")
	cmd.Flags().BoolVar(&o.Dev, "dev", false, "honour device files of a foreign tree, too")
}

// changes are the words that change a mount that is there: of -o, then of the other flags.
func (o *mountOptions) changes(cmd *cobra.Command) []string {
	var words []string
	for _, w := range o.taken {
		if w != "remount" {
			words = append(words, w)
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "read-only" && o.ReadOnly:
			words = append(words, "ro")
		case f.Name == "read-only":
			words = append(words, "rw")
		case f.Name == "transport":
			words = append(words, "transport="+o.Transport)
		case f.Name == "engine":
			words = append(words, "engine="+o.Engine)
		case f.Name != "options" && slices.Contains(mountFlagNames, f.Name) && f.Value.String() == "true":
			words = append(words, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	return words
}

// check refuses contradicting options, before anything is created. Only mount knows remount.
func (o *mountOptions) check(remounts bool) error {
	if o.remount && !remounts {
		return usagef("remount is an option of 'snapfs mount'")
	}
	if o.SUID && o.NoSUID {
		return usagef("--suid and --nosuid exclude each other")
	}
	if o.Dev && o.NoDev {
		return usagef("--dev and --nodev exclude each other")
	}
	if err := checkEngine(o.Engine); err != nil {
		return err
	}
	return checkTransport(o.Transport)
}

// checkEngine refuses what is no engine; "" is none.
func checkEngine(name string) error {
	switch name {
	case "", api.EngineFUSE, api.EngineKernel, api.EngineAuto:
		return nil
	}
	return usagef("--engine %q: fuse, kernel or auto", name)
}

func checkTransport(name string) error {
	switch name {
	case "auto", "uring", "dev":
		return nil
	}
	return usagef("--transport %q: auto, uring or dev", name)
}
