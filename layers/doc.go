// Package layers is the overlay: one upper directory over a stack of immutable lowers, with the semantics of the
// kernel's overlayfs and no knowledge of FUSE.
package layers
