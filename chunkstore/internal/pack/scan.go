package pack

// Scan calls fn for the records of a pack or journal in order, and damaged for what lies between them and is
// none. Behind a damaged record it goes on where that says it ends, if there is a record, else at the next
// byte at which there is one.
func Scan(b []byte, fn func(off int64, r *Record), damaged func(off, n int64)) {
	at := func(off int) (*Record, int) {
		size, err := recordSize(b[off:])
		if err != nil || size > int64(len(b)-off) {
			return nil, 0
		}
		r, err := ParseRecord(b[off : off+int(size)])
		if err != nil {
			return nil, int(size)
		}
		return r, int(size)
	}
	for off := HeaderSize; off < len(b); {
		r, size := at(off)
		if r != nil {
			fn(int64(off), r)
			off += size
			continue
		}
		bad := off
		off += size
		if size > 0 && off < len(b) {
			r, _ = at(off)
		}
		if r == nil && (size == 0 || off < len(b)) {
			for off = bad + 1; off < len(b); off++ {
				if r, _ = at(off); r != nil {
					break
				}
			}
		}
		damaged(int64(bad), int64(off-bad))
	}
}
