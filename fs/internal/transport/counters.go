package transport

import (
	"sync/atomic"

	"snapfs/fs/internal/proto"
)

// counters counts the requests of one mount by opcode.
type counters [proto.Opcodes]atomic.Uint64

func (c *counters) snapshot() map[string]uint64 {
	m := make(map[string]uint64)
	for op := range c {
		if n := c[op].Load(); n > 0 {
			m[proto.Name(uint32(op))] = n
		}
	}
	return m
}
