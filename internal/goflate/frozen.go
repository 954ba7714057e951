package goflate

const maxNumLit = 286 // symbols of the literal and length alphabet (RFC 1951, 3.2.7)

// An InternalError reports an error in the compressor itself.
type InternalError string

func (e InternalError) Error() string { return "goflate: internal error: " + string(e) }
