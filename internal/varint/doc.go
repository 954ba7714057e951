// Package varint parses what encoding/binary appends: varints, counts, and strings of bytes one behind the other. A
// parser of a format reads all fields and asks once, at the end, whether one of them was malformed.
package varint
