package squashfs

import (
	"context"
	"errors"
	"io"
)

// Violation is one broken rule of the format.
type Violation struct {
	Off  int64 // in the image, -1 if none
	Path string
	Rule string
}

// Check walks an image and reports every violated rule. Its error is only that of reading or of ctx.
//
// It reads all metadata, unpacks all compressed data once, and follows every name. Besides the cache of a reader it
// needs about 70 bytes of memory for each inode that really exists, whatever the image claims. It does not check what
// damage makes unreachable. A damaged extension section is reported, too, although readers continue without it.
func Check(ctx context.Context, r io.ReaderAt, size int64, report func(Violation)) error {
	c := checker{ctx: ctx, report: report}
	im, err := Open(r, size, Options{})
	if err != nil {
		return c.failed("", err)
	}
	c.im = im
	c.dataBudget = checkFactor * int64(im.sb.bytesUsed)
	c.starts = make(map[uint64]int64)
	for _, step := range []func() error{
		c.options, c.ids, c.fragments, c.xattrs, c.scan, c.exports, c.tree, c.links,
		c.section,
	} {
		if err := step(); errors.Is(err, errEnough) {
			report(Violation{Off: -1, Rule: err.Error()})
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// maxViolations is how many violations are reported before the check stops: an image of garbage has no end of them.
const maxViolations = 100_000

var errEnough = errors.New("too many violations, the rest is not checked")

// checkFactor bounds how often the check reads the same data. Ordinary images share blocks between some files; in
// malicious ones every inode may claim the same gigabyte.
const checkFactor = 4

// checker is one run of Check.
type checker struct {
	ctx    context.Context //nolint:containedctx // lives as long as the call
	report func(Violation)
	found  int // violations reported
	im     *Image

	refs   []Ref     // of all inodes, in ascending order
	inodes []checked // of the same inodes
	cut    bool      // the inode table could not be read to its end

	tails      []uint32         // length of each fragment, 0 if damaged
	dataBudget int64            // stored bytes that may still be unpacked
	starts     map[uint64]int64 // how far the data that begins somewhere has been verified
}

// checked is what the check remembers of an inode.
type checked struct {
	number uint32
	nlink  uint32
	names  uint32 // found so far
	subs   uint32 // subdirectories found in it
	parent uint32
	typ    uint16
}

// stop reports whether the check must end.
func (c *checker) stop() error {
	if c.found >= maxViolations {
		return errEnough
	}
	return c.ctx.Err()
}

// bad reports a violation.
func (c *checker) bad(path string, err error) {
	c.found++
	v := Violation{Off: -1, Path: path, Rule: err.Error()}
	var placed *CorruptError
	if errors.As(err, &placed) {
		v.Off, v.Rule = placed.Off, placed.Reason
		if placed.cause != nil {
			v.Rule += ": " + placed.cause.Error()
		}
	}
	c.report(v)
}

// failed reports an error that is damage, and returns any other.
func (c *checker) failed(path string, err error) error {
	if err == nil || !errors.Is(err, ErrCorrupt) {
		return err
	}
	c.bad(path, err)
	return nil
}
