//go:build unix

package etcd_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/kv"
)

// A range with a limit has the same answer as without, whatever was asked before: near ends are guesses, and cost a request if they are wrong.
func TestNearEndsChangeNoAnswer(t *testing.T) {
	const keys, questions = 2000, 1000
	e := engine(t)
	random := rand.New(rand.NewPCG(1, 2))
	key := func() []byte {
		table := []byte{"ab"[random.IntN(2)]}
		switch random.IntN(3) {
		case 0: // dense
			return binary.BigEndian.AppendUint64(append(table, "line"...), uint64(random.IntN(1000)))
		case 1: // far from each other
			return binary.BigEndian.AppendUint64(append(table, "line"...), random.Uint64())
		default: // short
			return append(table, byte(random.IntN(256)))[:1+random.IntN(2)]
		}
	}
	values := map[string]bool{}
	var c kv.Change
	for range keys {
		if k := key(); !values[string(k)] {
			values[string(k)] = true
			c.Puts = append(c.Puts, kv.Item{Key: k})
		}
	}
	commit(t, e, c)
	v := view(t, e)
	answers, err := v.Read(t.Context(), kv.Range{From: []byte{}, To: []byte{0xff}})
	require.NoError(t, err)
	all := answers[0]
	require.Len(t, all, len(values))
	for range questions {
		ask := make([]kv.Range, 1+random.IntN(4))
		for i := range ask {
			ask[i] = kv.Range{From: key(), To: key(), Limit: random.IntN(50)}
			if random.IntN(3) == 0 {
				ask[i].To = []byte("c")
			}
		}
		answers, err := v.Read(t.Context(), ask...)
		require.NoError(t, err)
		for i, r := range ask {
			var want, got []string
			for _, item := range all {
				if k := string(item.Key); k >= string(r.From) && k < string(r.To) && (r.Limit == 0 || len(want) < r.Limit) {
					want = append(want, fmt.Sprintf("%q", k))
				}
			}
			for _, item := range answers[i] {
				got = append(got, fmt.Sprintf("%q", item.Key))
			}
			require.Equal(t, want, got, "%+v", r)
		}
	}
}
