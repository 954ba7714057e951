// Package sample makes data for the tests of chunkstore: noise, text with edits, and ELF files with compressed
// sections. The same seed gives the same data. It also makes file systems of their own for them.
package sample
