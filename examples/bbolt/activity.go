package bbolt

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// sums returns the prefix of the keys of rows of one width: those of each queue and kind or, overall, those of all of them.
func sums(overall bool, width time.Duration) []byte {
	sort := byte('e')
	if overall {
		sort = 'o'
	}
	return append(number(int64(width)), sort)
}

// AddActivity adds to rows of each width, and removes rows that no answer needs any more.
func (s *Store) AddActivity(ctx context.Context, items []contract.Activity) error {
	_, err := write(ctx, s, contract.CheckActivity(items), func(t *txn) struct{} {
		rows := contract.ActivityRows(items)
		for _, width := range contract.ActivityWidths {
			at := contract.AtMultiple(t.now, width)
			for _, row := range rows {
				name := slices.Concat([]byte(row.Queue), []byte{0}, []byte(row.Kind))
				key := slices.Concat(sums(row.Overall, width), moment(at), name)
				sum, _ := get[contract.Activity](t, activity, key)
				sum = row.Plus(sum)
				sum.At = at
				t.put(activity, key, sum)
			}
			for _, overall := range []bool{false, true} {
				for _, key := range t.upTo(activity, sums(overall, width), contract.ActivityKept(width, t.now), contract.MaxItems) {
					t.remove(activity, key)
				}
			}
		}
		return struct{}{}
	})
	return err
}

// Activity adds up the rows that the filter selects.
func (s *Store) Activity(ctx context.Context, filter contract.ActivityFilter) (contract.ActivityPage, error) {
	return read(ctx, s, filter.Check(), func(t *txn) contract.ActivityPage {
		sum := filter.Sum(t.now)
		for _, part := range filter.Parts(t.now) {
			prefix := sums(part.Overall, part.Width)
			c := t.in(activity).Cursor()
			key, raw := c.Seek(slices.Concat(prefix, moment(part.From)))
			for ; bytes.HasPrefix(key, prefix) && t.look(); key, raw = c.Next() {
				row := decode[contract.Activity](t, activity, raw)
				if !part.To.IsZero() && !row.At.Before(part.To) {
					break
				}
				sum.Add(row)
			}
		}
		return sum.Page()
	})
}
