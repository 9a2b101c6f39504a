package tikv_test

import (
	"testing"

	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/spread"
)

// Eight stores on one queue hardly ever conflict, and none of them starves.
func TestEightStoresShareAQueue(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector, which makes the cluster in the process so slow that far more calls meet")
	}
	spread.Crowd(t, cluster(t).connect)
}
