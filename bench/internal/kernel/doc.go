// Package kernel measures the kernel engine: what many mounts of one snapshot share, and snapshots of an upper that stays
// mounted. A peer is the kernel's overlayfs over a directory, or snapfs over FUSE.
package kernel
