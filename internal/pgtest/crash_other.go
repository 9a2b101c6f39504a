//go:build !linux

package pgtest

import (
	"context"

	"github.com/lib/pq"
)

// others returns the processes of the server but for the first one. A process that begins meanwhile is not in the list, and may
// survive the crash.
func (c *Cluster) others(ctx context.Context, _ int) (pids []int, err error) {
	var found pq.Int64Array
	err = c.get(ctx, &found, `SELECT array_agg(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()`)
	for _, pid := range found {
		pids = append(pids, int(pid))
	}
	return pids, err
}
