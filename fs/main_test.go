package fs_test

import (
	"testing"

	"snapfs/internal/testmount"
	"snapfs/internal/twin"
)

func TestMain(m *testing.M) {
	twin.Child()
	otherUser()
	loadChild()
	testmount.Main(m)
}
