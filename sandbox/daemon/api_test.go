package daemon_test

import (
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/apitest"
)

func TestAPI(t *testing.T) {
	apitest.Run(t, func(t *testing.T, dir string, remount bool) sandbox.API { return start(t, dir, remount) })
}
