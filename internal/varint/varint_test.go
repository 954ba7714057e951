package varint

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParser(t *testing.T) {
	b := binary.AppendUvarint(nil, math.MaxUint64)
	b = binary.AppendVarint(b, math.MinInt64)
	b = binary.AppendVarint(b, -1)
	b = binary.AppendUvarint(b, 300)
	b = append(b, 7, 'a', 'b', 'c')
	p := Parser{Rest: b}
	require.Equal(t, uint64(math.MaxUint64), p.Uint())
	require.Equal(t, int64(math.MinInt64), p.Int())
	require.Equal(t, int64(-1), p.Int())
	require.Equal(t, 300, p.Count(300))
	require.Equal(t, byte(7), p.Byte())
	got := p.Bytes(2)
	require.Equal(t, "ab", string(got))
	require.Equal(t, 2, cap(got), "appending to it leaves the rest as it is")
	require.Equal(t, "c", string(p.Rest))
	require.False(t, p.Bad)
}

// TestMalformed: after a malformed value everything is zero, and Bad stays.
func TestMalformed(t *testing.T) {
	tail := []byte{1, 1, 1, 1}
	for name, read := range map[string]func(p *Parser){
		"too long a varint": func(p *Parser) { p.Uint() },
		"count":             func(p *Parser) { p.Rest = []byte{5, 1, 1}; p.Count(4) },
		"bytes":             func(p *Parser) { p.Bytes(len(p.Rest) + 1) },
		"negative":          func(p *Parser) { p.Bytes(-1) },
	} {
		p := Parser{Rest: append([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, tail...)}
		read(&p)
		require.True(t, p.Bad, name)
		require.Zero(t, p.Uint(), name)
		require.Zero(t, p.Int(), name)
		require.Zero(t, p.Byte(), name)
		require.Empty(t, p.Rest, name)
	}
	var p Parser
	require.Zero(t, p.Byte())
	require.True(t, p.Bad, "the end")
}
