// Package corrupt has the one class of error that says that stored data is not what was written. It is what
// chunkstore.ErrCorrupt is, for packages that chunkstore imports.
package corrupt
