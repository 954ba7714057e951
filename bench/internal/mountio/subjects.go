package mountio

import (
	"snapfs/bench/internal/peers"
	"snapfs/bench/internal/snapfs"
	"snapfs/bench/internal/subject"
)

// subjects are in the order of the tables.
func subjects() []subject.Subject[subject.Mount] {
	return []subject.Subject[subject.Mount]{
		peers.Native(), peers.Overlayfs(), peers.FuseOverlayfs(), snapfs.Mount("dev"), snapfs.KeptMount(),
		snapfs.Mount("uring"), snapfs.KernelMount("dev"), snapfs.KernelMount("uring"),
	}
}
