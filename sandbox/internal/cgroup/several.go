package cgroup

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Groups are some groups that are frozen together. Their text has one a line, for no name of a group has a newline.
type Groups []Group

// Parse reads the text of groups.
func Parse(text string) Groups {
	var all Groups
	for line := range strings.Lines(text) {
		all = append(all, Group(strings.TrimSuffix(line, "\n")))
	}
	return all
}

func (all Groups) String() string {
	lines := make([]string, len(all))
	for i, g := range all {
		lines[i] = string(g)
	}
	return strings.Join(lines, "\n")
}

// Freeze stops all processes of all groups, in ten seconds. If it cannot, or ctx ends, they go on.
func (all Groups) Freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freezeWait+time.Second) // each says itself that it does not freeze
	defer cancel()
	for i, g := range all {
		if err := g.Freeze(ctx); err != nil {
			return errors.Join(err, all[:i].Thaw())
		}
	}
	return nil
}

// Thaw lets them go on, also if some cannot be thawed.
func (all Groups) Thaw() error {
	var err error
	for _, g := range all {
		err = errors.Join(err, g.Thaw())
	}
	return err
}
