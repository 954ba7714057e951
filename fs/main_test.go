package fs_test

import (
	"os"
	"testing"

	"snapfs/internal/testmount"
	"snapfs/internal/twin"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(herdEnv); what != "" {
		herd(what)
		return
	}
	twin.Child()
	stranger()
	testmount.Main(m)
}
