// Package sketch finds chunks that are alike, to encode one as a delta of the other.
//
// A Sketch describes a chunk in some bytes; sketches of similar chunks share features. An Index finds the chunk with
// the most features of a sketch. A segment is a list of sketches as the store keeps it.
package sketch
