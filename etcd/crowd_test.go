//go:build unix

package etcd_test

import (
	"testing"

	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
	"github.com/seed-ed332417/jq/internal/spread"
)

// Eight stores on one queue hardly ever conflict, and none of them starves.
func TestEightStoresShareAQueue(t *testing.T) {
	p := &place{cluster: start(t, etcdtest.Options{NoSync: true}), prefix: "crowd"}
	spread.Crowd(t, p.connect)
}
