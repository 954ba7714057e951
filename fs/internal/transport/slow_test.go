package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSyncTime is about which fsyncs are handled by the thread that read them: those of a disk that was quick lately.
func TestSyncTime(t *testing.T) {
	s := newSyncTime()
	require.False(t, s.quick(), "nothing is known of the disk")
	for range 10 {
		s.note(quickSync / 10)
	}
	require.True(t, s.quick())
	s.note(time.Second)
	require.False(t, s.quick(), "the disk was slow once")
	for range 100 {
		s.note(quickSync / 10)
	}
	require.True(t, s.quick(), "it recovered")
	for range 100 {
		s.note(2 * quickSync)
	}
	require.False(t, s.quick(), "it is slow")
}
