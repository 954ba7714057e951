package api

import "strings"

// MountOptions are how a workspace is mounted.
type MountOptions struct {
	// Engine shows the workspace, and is kept with it. "" is the one that it has, which is EngineFUSE if none was ever named.
	Engine    string `json:"engine,omitempty"`
	Transport string `json:"transport,omitempty"`
	ReadOnly  bool   `json:"read_only"`
	NoSUID    bool   `json:"nosuid"`
	NoDev     bool   `json:"nodev"`
	// SUID and Dev honour the setuid programs and device files of a tree that comes from elsewhere, which is mounted
	// NoSUID and NoDev without them. Other trees need neither.
	SUID    bool `json:"suid,omitempty"`
	Dev     bool `json:"dev,omitempty"`
	NoExec  bool `json:"noexec"`
	NoAtime bool `json:"noatime"`
	// Writeback lets the kernel keep small writes back and send them together: until close, fsync, msync or some
	// seconds later. A snapshot or fork of the running workspace then lacks what was written to a file that is still
	// open and was not flushed since, and such writes end with the machine as on a local disk, and with the daemon.
	Writeback bool `json:"writeback,omitempty"`
	// AllowOther lets other users, root among them, into the mount of a user: ErrConflict unless /etc/fuse.conf has
	// user_allow_other. They hang with what the user pauses. What root mounts is open to all in any case.
	AllowOther bool `json:"allow_other,omitempty"`
	// TrackReads records what programs read of the tree, see [API.Reads]. Later mounts of the workspace go on with it,
	// whether they ask for it or not.
	TrackReads bool `json:"track_reads,omitempty"`
}

// mountWords are the options of mount(8) without a value that a mount of a workspace has.
var mountWords = []struct {
	name string
	set  func(*MountOptions)
}{
	{"ro", func(o *MountOptions) { o.ReadOnly = true }},
	{"rw", func(o *MountOptions) { o.ReadOnly = false }},
	{"suid", func(o *MountOptions) { o.SUID, o.NoSUID = true, false }},
	{"nosuid", func(o *MountOptions) { o.SUID, o.NoSUID = false, true }},
	{"dev", func(o *MountOptions) { o.Dev, o.NoDev = true, false }},
	{"nodev", func(o *MountOptions) { o.Dev, o.NoDev = false, true }},
	{"exec", func(o *MountOptions) { o.NoExec = false }},
	{"noexec", func(o *MountOptions) { o.NoExec = true }},
	{"atime", func(o *MountOptions) { o.NoAtime = false }},
	{"noatime", func(o *MountOptions) { o.NoAtime = true }},
	{"writeback", func(o *MountOptions) { o.Writeback = true }},
	{"nowriteback", func(o *MountOptions) { o.Writeback = false }},
	{"allow_other", func(o *MountOptions) { o.AllowOther = true }},
	{"track_reads", func(o *MountOptions) { o.TrackReads = true }},
	{"allow_suid", func(o *MountOptions) { o.SUID, o.NoSUID = true, false }},
	{"allow_dev", func(o *MountOptions) { o.Dev, o.NoDev = true, false }},
}

// MountWords lists the words that Apply knows without a value.
func MountWords() []string {
	names := make([]string, len(mountWords))
	for i, w := range mountWords {
		names[i] = w.name
	}
	return names
}

// Apply changes the options as one word of mount(8) says, such as nosuid, transport=dev or engine=kernel, and reports
// whether it knows the word. Of two that contradict each other, the last one counts. What transport= and engine= name is
// not checked.
func (o *MountOptions) Apply(word string) bool {
	switch name, value, given := strings.Cut(word, "="); {
	case given && name == "transport":
		o.Transport = value
		return true
	case given && name == "engine":
		o.Engine = value
		return true
	}
	for _, w := range mountWords {
		if w.name == word {
			w.set(o)
			return true
		}
	}
	return false
}
