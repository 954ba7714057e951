package sandbox

// Version is the version of snapfs, as the daemon and the command tell it.
const Version = "0.1.0"
