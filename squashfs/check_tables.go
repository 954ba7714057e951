package squashfs

import "fmt"

// ids reads the id table.
func (c *checker) ids() error {
	_, err := c.im.owner(0)
	return c.failed("", err)
}

// fragments reads the fragment table and unpacks each fragment, to learn how long it is.
func (c *checker) fragments() error {
	im := c.im
	for i := range im.sb.fragments {
		if err := c.stop(); err != nil {
			return err
		}
		f, err := im.fragment(i)
		if err != nil {
			return c.failed("", err)
		}
		c.tails = append(c.tails, 0)
		stored, compressed := dataHeader(f.size)
		if stored == 0 || stored > int(im.sb.blockSize) ||
			f.start < superblockSize || f.start > uint64(im.inodes.start) ||
			f.start+uint64(stored) > uint64(im.inodes.start) {
			c.bad("", corrupt(im.fragments.at, "fragment %d of %d bytes at %d, outside the data area", i, stored,
				f.start))
			continue
		}
		size := stored
		if compressed {
			if c.dataBudget -= int64(stored); c.dataBudget < 0 {
				c.bad("", corrupt(int64(f.start), "fragments overlap so often that the rest is not read"))
				return nil
			}
			data, err := im.loadData(int64(f.start), f.size, int(im.sb.blockSize))
			if err != nil {
				if err := c.failed("", err); err != nil {
					return err
				}
			}
			size = len(data)
		}
		c.tails[i] = uint32(size)
	}
	return nil
}

// xattrs reads every set of attributes.
func (c *checker) xattrs() error {
	im := c.im
	if im.sb.xattrTable == noTable {
		return nil
	}
	index, err := im.xattrs.get(im.xattrTables)
	if err != nil {
		return c.failed("", err)
	}
	blocks := (index.pairs.end - index.pairs.start) / 3
	budget := 1<<30 + checkFactor*metadataSize*blocks
	for i := range index.ids.count {
		if err := c.stop(); err != nil {
			return err
		}
		set, err := im.xattrSet(uint32(i), nil)
		if err != nil {
			if err := c.failed("", err); err != nil {
				return err
			}
			continue
		}
		names := make(map[string]struct{}, len(set))
		for _, x := range set {
			if _, ok := names[x.Name]; ok {
				c.bad("", corrupt(index.ids.at, "xattr set %d has %q twice", i, x.Name))
			}
			names[x.Name] = struct{}{}
			budget -= int64(len(x.Name) + len(x.Value))
		}
		budget -= entryOverhead
		if budget < 0 {
			c.bad("", corrupt(index.ids.at, "xattrs overlap so often that the rest is not read"))
			return nil
		}
	}
	return nil
}

// section reads the extension section.
func (c *checker) section() error {
	im := c.im
	x, err := openExtension(im.r, im.size, &im.sb)
	if err != nil && unlessDamaged(err) == nil {
		c.bad("", fmt.Errorf("extension section: %w", err))
		return nil
	}
	if err != nil || x == nil {
		return err
	}
	if err := x.verify(c.ctx, c.report); err != nil {
		return err
	}
	last := ""
	for _, n := range c.inodes {
		if err := c.stop(); err != nil {
			return err
		}
		if n.number == 0 || n.number > im.sb.inodes {
			continue // numbers has reported it
		}
		err := x.attr(n.number, &Attr{})
		if err != nil && err.Error() != last { // a damaged page is one violation, not one for each of its rows
			last = err.Error()
			if err := c.failed("", err); err != nil {
				return err
			}
		}
	}
	return nil
}
