package jq_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

type parcel struct {
	Number int64  `json:"number"`
	User   int64  `json:"user"`
	Text   string `json:"text"`
}

func (parcel) Kind() string { return "parcel" }

// BenchmarkMemory is the whole life of typed jobs on the memory store, through the public client and a server: enqueued, decoded, run and
// acked, while others are enqueued. It reports what each job costs.
func BenchmarkMemory(b *testing.B) {
	for _, batch := range []int{1, 1000} {
		b.Run(fmt.Sprintf("by%d", batch), func(b *testing.B) { benchmarkMemory(b, batch) })
	}
}

func benchmarkMemory(b *testing.B, batch int) {
	store := jq.NewMemory(nil)
	defer func() { require.NoError(b, store.Close()) }()
	var handlers jq.Handlers
	var ran atomic.Int64
	done := make(chan struct{})
	jq.Handle(&handlers, func(context.Context, *jq.Run, parcel) error {
		if ran.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{
		Slots: 100, Claim: jq.ClaimOptions{Buffer: 4000}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	require.NoError(b, server.Start(b.Context()))
	client := jq.NewClient(store, nil)
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	for next := 0; next < b.N; {
		if batch == 1 {
			_, err = client.Enqueue(b.Context(), newParcel(next), nil)
			next++
		} else {
			items := make([]jq.Item, min(batch, b.N-next))
			for i := range items {
				items[i].Payload = newParcel(next + i)
			}
			_, err = client.EnqueueMany(b.Context(), items, nil)
			next += len(items)
		}
		require.NoError(b, err)
	}
	<-done
	require.NoError(b, server.Stop(b.Context()))
	b.StopTimer()
	counts, err := client.Count(b.Context(), jq.Filter{States: []jq.State{jq.Succeeded}})
	require.NoError(b, err)
	require.Equal(b, int64(b.N), counts.Total())
}

func newParcel(number int) parcel {
	return parcel{Number: int64(number), User: 12345, Text: "hello there"}
}
