// Package fs serves a layers.Overlay to the kernel over FUSE: it translates and holds no policy.
package fs
