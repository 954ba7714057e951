package zdeflate

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// reference compresses with the zlib of this machine, through Python: per request the four parameters and the length
// of the data, 4 bytes each, and the data; the answer is a length and the stream.
type reference struct {
	in  *bufio.Writer
	out *bufio.Reader
}

const referenceProgram = `
import struct, sys, zlib
r, w = sys.stdin.buffer, sys.stdout.buffer
while h := r.read(20):
    level, wbits, mem, strategy, n = struct.unpack("<5I", h)
    data = r.read(n)
    c = zlib.compressobj(level, zlib.DEFLATED, wbits, mem, strategy)
    out = c.compress(data[:17]) + c.compress(data[17:]) + c.flush()
    w.write(struct.pack("<I", len(out)) + out)
    w.flush()
`

func startReference(t *testing.T) *reference {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "-c", referenceProgram)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // the context of the test may have ended it
	})
	return &reference{bufio.NewWriter(in), bufio.NewReader(out)}
}

func (r *reference) zlib(t *testing.T, data []byte, p Params) []byte {
	t.Helper()
	var h []byte
	for _, v := range []int{p.Level, p.WindowBits, p.MemLevel, int(p.Strategy), len(data)} {
		h = binary.LittleEndian.AppendUint32(h, uint32(v))
	}
	_, err := r.in.Write(append(h, data...))
	require.NoError(t, err)
	require.NoError(t, r.in.Flush())
	_, err = io.ReadFull(r.out, h[:4])
	require.NoError(t, err)
	out := make([]byte, binary.LittleEndian.Uint32(h))
	_, err = io.ReadFull(r.out, out)
	require.NoError(t, err)
	return out
}

// mixed makes n bytes of stretches of many kinds: random, few values, words, repetitions near and far, runs.
func mixed(rnd *rand.Rand, n int) []byte {
	out := make([]byte, 0, n+70_000)
	for len(out) < n {
		k := 1 + rnd.Intn(1<<rnd.Intn(16))
		switch rnd.Intn(6) {
		case 0:
			p := make([]byte, k)
			rnd.Read(p)
			out = append(out, p...)
		case 1:
			values := 1 + rnd.Intn(20)
			for range k {
				out = append(out, byte(rnd.Intn(values)))
			}
		case 2:
			out = append(out, bytes.Repeat([]byte{byte(rnd.Intn(256))}, k)...)
		case 3:
			for range k / 8 {
				out = fmt.Appendf(out, "%s %d\n", words[rnd.Intn(len(words))], rnd.Intn(300))
			}
		default:
			if len(out) == 0 {
				continue
			}
			for range 1 + rnd.Intn(200) {
				at := max(0, len(out)-1-rnd.Intn(1<<(1+rnd.Intn(17))))
				m := 1 + rnd.Intn(1+rnd.Intn(300))
				for ; m > 0 && at < len(out); m-- {
					out = append(out, out[at])
					at++
				}
				out = append(out, byte(rnd.Intn(4)))
			}
		}
	}
	return out[:n]
}

var words = []string{"func", "return", "if err != nil {", "}", "commit", "tree", "0123456789abcdef", "\t\t", "the", "of"}

// TestZlib compares the output with that of the zlib of this machine.
func TestZlib(t *testing.T) {
	seed := testseed.Of(t)
	rnd := rand.New(rand.NewSource(int64(seed)))
	ref := startReference(t)
	check := func(name string, data []byte, p Params) {
		t.Helper()
		var got bytes.Buffer
		require.NoError(t, Zlib(&got, data, p))
		require.True(t, bytes.Equal(ref.zlib(t, data, p), got.Bytes()), "%s, %d bytes, %+v", name, len(data), p)
	}
	for level := 1; level <= 9; level++ {
		for name, data := range inputs() {
			check(name, data, Params{Level: level, MemLevel: 8, WindowBits: 15})
		}
		check("noise", inputs()["noise"], Params{Level: level, MemLevel: 9, WindowBits: 15})
	}
	for range 700 {
		data := mixed(rnd, rnd.Intn(1<<rnd.Intn(18)))
		p := Params{Level: 1 + rnd.Intn(9), MemLevel: 8, WindowBits: 15, Strategy: Strategy(rnd.Intn(2))}
		if rnd.Intn(2) == 0 {
			p.MemLevel = 1 + rnd.Intn(9)
		}
		if rnd.Intn(3) == 0 {
			p.WindowBits = 9 + rnd.Intn(7)
		}
		check("mixed", data, p)
	}
	for range 12 {
		check("long", mixed(rnd, 1<<20+rnd.Intn(1<<20)), Params{Level: 1 + rnd.Intn(9), MemLevel: 8 + rnd.Intn(2), WindowBits: 15})
	}
}
