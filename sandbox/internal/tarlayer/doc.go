// Package tarlayer turns the tar files that are layers of container images into upper directories, and trees into such
// tar files.
//
// # Nouns
//
//   - A layer's tar file lists what a layer adds and changes. A file .wh.NAME in it is a whiteout: NAME of the layers below
//     is gone. A file .wh..wh..opq makes its directory opaque: nothing of the layers below shows in it.
//   - The upper that a layer is unpacked into has no lowers. So a name in a layer never depends on those below, a
//     symbolic link of a lower layer is never followed, and a directory replaces it, as with the engines that unpack each
//     layer by itself. What lies below is looked at for two things: the attributes of directories that the layer does not
//     list, and hard links to files of lower layers, which are copied.
//   - An implicit directory is one that a layer has something in and does not list.
//
// # What is unpacked how
//
//	the same name twice              the later one counts; directories are united
//	a parent that is missing         becomes an implicit directory
//	a parent that is a link          is followed inside of the layer, as with chroot
//	a parent that is no directory    ErrInvalid
//	.. that leads out                ErrInvalid; in a symbolic link's target it ends at the root
//	an absolute name                 counts from the root
//	NAME and .wh.NAME                the whiteout is for the layers below; a directory NAME becomes opaque
//	.wh..wh.* but the one above      is left out: notes of a union file system for itself
//	a hard link to what is nowhere   ErrInvalid
//
// # Bounds
//
// Memory does not grow with a layer: the directories last used are known (maxDirs), and a buffer. Limits bound entries
// and bytes, holes included.
//
// # Writing
//
// The tar file depends on the tree alone. Sockets cannot be in one and are left out; so are attributes with a name that
// the format does not take. Holes become zeros.
package tarlayer
