package kv_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails where a test has left a goroutine behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
