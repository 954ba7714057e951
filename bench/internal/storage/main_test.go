package storage

import (
	"testing"

	"snapfs/internal/testmount"
)

func TestMain(m *testing.M) { testmount.Main(m) }
