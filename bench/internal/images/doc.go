// Package images holds Go benchmarks of package squashfs beside squashfs-tools and squashfuse: writing, opening and
// reading images.
package images
