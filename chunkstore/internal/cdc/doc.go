// Package cdc cuts byte streams into chunks by their contents, so that equal stretches of two streams become equal
// chunks.
//
// A stream consists of parts, such as a file's data or a metadata table. A part always starts a chunk. A short one is
// one chunk; where a longer one is cut depends on its bytes only.
package cdc
