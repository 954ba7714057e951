// Package peers has the systems of others that people would use in place of snapfs: stores of states (git, restic,
// borg, btrfs, archives), workspaces with snapshots (btrfs, reflinks, squashfs below an overlay), and mounts (ext4,
// overlayfs, fuse-overlayfs).
package peers
