// Package squashfs reads, writes and checks squashfs 4.0 images.
package squashfs
