package kv

import (
	"context"
	"fmt"
	"math"

	"github.com/seed-ed332417/jq/contract"
)

// Fence starts a new epoch: new tokens and ids are above its floor. It writes one key, which every change guards. The leases that it ends
// are those with a token from before the epoch, whenever somebody reads their rows.
func (s *Store) Fence(ctx context.Context, req contract.FenceRequest) (int64, error) {
	return call(ctx, s, req.Check(), ask{tickets: 1}, func(t *txn) int64 {
		ticket := t.ticket()
		epoch, err := req.Raised(t.meta.Epoch, contract.Floor(t.meta.Epoch)+ticket)
		if err == nil && ticket > (math.MaxInt64-contract.Floor(epoch))/2 { // tickets go on from where they are
			err = &contract.InvalidError{Item: -1, Field: "epoch", Rule: fmt.Sprintf("is too high for a store whose engine has given the ticket %d: ids would end soon", ticket)}
		}
		if err != nil {
			t.fail(err)
			return 0
		}
		raised := t.meta
		raised.Epoch = epoch
		if req.EndLeases {
			raised.Ended = epoch
		}
		t.put(key(metas), raised)
		return epoch
	})
}
