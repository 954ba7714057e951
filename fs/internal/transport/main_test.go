package transport_test

import (
	"os"
	"testing"

	"snapfs/internal/testmount"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(herdEnv); what != "" {
		herd(what)
		return
	}
	testmount.Main(m)
}
