// Package sample makes data for the tests of chunkstore: noise, text with edits, and ELF files with compressed
// sections. The same seed gives the same data.
package sample
