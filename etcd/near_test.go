//go:build unix

package etcd_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/etcd"
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

// The first 100 of 100,000 keys, with a near end and without.
func BenchmarkFirstOfMany(b *testing.B) {
	const keys, atOnce = 100_000, 10_000
	p, err := newPlace()
	require.NoError(b, err)
	e := etcd.Connect(clientv3.Config{Endpoints: p.cluster.Endpoints()}, p.prefix)
	defer func() { assert.NoError(b, e.Close()) }()
	key := func(i int) []byte { return binary.BigEndian.AppendUint64([]byte("k"), uint64(i)<<10) }
	for from := 0; from < keys; from += atOnce {
		var c kv.Change
		for i := range atOnce {
			c.Puts = append(c.Puts, kv.Item{Key: key(from + i)})
		}
		v, err := e.View(b.Context())
		require.NoError(b, err)
		require.NoError(b, v.Commit(b.Context(), c))
	}
	for name, prepare := range map[string]func(){"near": func() {}, "whole": e.Forget} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				prepare()
				v, err := e.View(b.Context())
				require.NoError(b, err)
				answers, err := v.Read(b.Context(), kv.Range{From: key(0), To: []byte("l"), Limit: 100})
				require.NoError(b, err)
				require.Len(b, answers[0], 100)
			}
		})
	}
}
