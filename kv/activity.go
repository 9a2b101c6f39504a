package kv

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// sums returns the prefix of the keys of sums of one width: those of each queue and kind or, overall, those of all of them.
func sums(overall bool, width time.Duration) []byte {
	sort := byte('e')
	if overall {
		sort = 'o'
	}
	return key(activity, number(int64(width)), []byte{sort})
}

// AddActivity adds to sums of each width, and removes sums that no answer needs any more. Servers call it now and then, so that it may read and write the
// same sums in each call.
func (s *Store) AddActivity(ctx context.Context, items []contract.Activity) error {
	_, err := inTurn(ctx, s, string(activity), contract.CheckActivity(items), ask{}, func(t *txn) struct{} {
		if len(items) == 0 {
			return struct{}{}
		}
		sumRows := contract.ActivityRows(items)
		var keys [][]byte
		var old []Range
		for _, width := range contract.ActivityWidths {
			at := moment(contract.AtMultiple(t.now, width))
			for _, row := range sumRows {
				keys = append(keys, slices.Concat(sums(row.Overall, width), at, []byte(row.Queue), []byte{0}, []byte(row.Kind)))
			}
			for _, overall := range []bool{false, true} {
				gone := upTo(sums(overall, width), contract.ActivityKept(width, t.now), contract.MaxItems)
				gone.KeysOnly = true
				old = append(old, gone)
			}
		}
		t.fetch(keys...)
		for i, k := range keys {
			sum, _ := get[contract.Activity](t, k)
			sum = sumRows[i%len(sumRows)].Plus(sum)
			sum.At = contract.AtMultiple(t.now, contract.ActivityWidths[i/len(sumRows)])
			t.put(k, sum)
		}
		for _, found := range t.scan(old...) {
			for _, item := range found {
				t.remove(item.Key)
			}
		}
		return struct{}{}
	})
	return err
}

// Activity adds up the sums that the filter selects.
func (s *Store) Activity(ctx context.Context, filter contract.ActivityFilter) (contract.ActivityPage, error) {
	return call(ctx, s, filter.Check(), ask{}, func(t *txn) contract.ActivityPage {
		sum := filter.Sum(t.now)
		for _, part := range filter.Parts(t.now) {
			prefix := sums(part.Overall, part.Width)
			r := Range{From: slices.Concat(prefix, moment(part.From)), To: following(prefix)}
			if !part.To.IsZero() {
				r.To = slices.Concat(prefix, moment(part.To))
			}
			for item := range t.each(r) {
				sum.Add(decode[contract.Activity](t, item.Key, item.Value))
			}
		}
		return sum.Page()
	})
}
