// Package imagefile reads and writes files that hold container images: what 'docker save' and 'podman save' write, and
// the layouts of the Open Container Initiative (OCI). It knows nothing of what is in a layer.
//
// # Nouns
//
//   - An archive is a tar file, or a directory, that holds blobs by name.
//   - A docker archive names its images in manifest.json: for each one a file with the configuration, and the files of
//     the layers, the lowest first.
//   - An OCI layout names them in index.json: manifests, by digest, perhaps in further indexes. A manifest names
//     configuration and layers by digest. Blobs are files blobs/ALGORITHM/DIGEST. In a tar file it is an OCI archive.
//   - A layer is a tar file of its own, perhaps compressed. Its digest is of the blob, its diff-id of what that is
//     unpacked. The configuration lists the diff-ids.
//   - A chain id names a layer together with those below it: the digest of the chain id below and the diff-id.
//   - A platform is the operating system and processor that an image is for.
//
// # Reading
//
// Nothing is trusted. What is parsed as a whole has a bound (maxDocument), as have the names in an archive, the layers
// of an image, the depth of indexes, and what a layer may become when it is unpacked (Layer.Read). A blob is used only as
// far as its digest, its size and its diff-id come out right in the end: who reads a layer must drop what it has made of
// it if Read fails. Files of a layout's directory are opened below it, never through a symbolic link.
//
// # Writing
//
// A Writer writes into a file from its begin to its end, with one place after each layer to put right what is known
// only then. The same image gives the same bytes.
package imagefile
