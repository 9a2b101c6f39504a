package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A hanging records the calls of one method that are never answered.
type hanging struct {
	mu      sync.Mutex // guards what follows
	n       int
	longest time.Duration
}

// hang lets the calls of the method wait for the end of their contexts, and answers other calls as given.
func (g *hanging) hang(method string, others error) func(ctx context.Context, method string) error {
	return func(ctx context.Context, called string) error {
		if called != method {
			return others
		}
		began := time.Now()
		<-ctx.Done()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.n++
		g.longest = max(g.longest, time.Since(began))
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
}

func (g *hanging) seen() (n int, longest time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n, g.longest
}

// A call that is never answered is given up in time, logged and repeated, and the other loops continue meanwhile: R35.
func TestCallThatHangsHoldsUpNoOtherLoop(t *testing.T) {
	for method, k := range map[string]struct {
		most  time.Duration // for a call
		least int           // calls in ten minutes
		line  string
		op    string
	}{
		"claim":    {30 * time.Second, 18, noAnswer, "claim"},
		"recover":  {20 * time.Second, 20, noAnswer, "recover"},
		"extend":   {20 * time.Second / 3, 50, "jq: heartbeat failed", ""},
		"register": {10 * time.Second, 50, noAnswer, "register"},
		"delete":   {30 * time.Second, 4, noAnswer, "delete"},
		"queues":   {10 * time.Second, 7, noAnswer, "policies"},
	} {
		t.Run(method, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["job"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Second) }
				w.handlers["long"] = func(ctx context.Context, _ *Run) error { return travel(ctx, 20*time.Second) }
				h := w.hook()
				s := w.start(Options{Timeout: time.Hour}, h)
				w.wait(2 * time.Minute)
				before := map[string]int{}
				others := []string{"claim", "recover", "extend", "register", "delete", "queues"}
				for _, other := range others {
					before[other] = h.count(other)
				}
				g := &hanging{}
				h.every(g.hang(method, nil))
				for range 120 { // ten minutes, with jobs enough to be extended
					w.enqueue(1, "job")
					w.enqueue(1, "long")
					w.wait(5 * time.Second)
				}
				n, longest := g.seen()
				assert.GreaterOrEqual(w, n, k.least)
				assert.LessOrEqual(w, longest, k.most)
				lines := w.said(k.line)
				if assert.NotEmpty(w, lines) && k.op != "" {
					assert.Equal(w, k.op, lines[0]["op"])
				}
				for _, other := range others {
					least := map[string]int{"claim": 500, "recover": 50, "extend": 50, "register": 50, "delete": 9, "queues": 9}[other]
					switch {
					case other == method, other == "extend" && method == "claim": // nothing is held
					case other == "delete" && method == "queues", other == "queues" && method == "delete": // one after the other
					default:
						assert.GreaterOrEqual(w, h.count(other)-before[other], least, other)
					}
				}
				h.let()
				w.wait(time.Minute)
				require.NoError(w, s.Ready())
				w.stop(s)
			})
		})
	}
}

// Recovery asks an unreachable store whether it is back. A call that hangs is given up in time, even if nothing else is known of the
// store, and recovery continues soon after the outage: by this server, or by any other.
func TestProbeThatHangsIsGivenUp(t *testing.T) {
	for name, every := range map[string]time.Duration{"Recovers": 0, "LeavesItToOthers": -1} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				h := w.hook()
				g := &hanging{}
				away := g.hang("recover", fmt.Errorf("connection refused: %w", store.ErrUnavailable))
				if every < 0 { // its only probes are those before the first claim
					h.every(away)
				}
				s := w.start(Options{Recovery: RecoveryOptions{Interval: every}}, h)
				w.wait(time.Minute)
				h.every(away)
				w.wait(10 * time.Minute)
				n, longest := g.seen()
				assert.GreaterOrEqual(w, n, 15, "probes in ten minutes")
				assert.LessOrEqual(w, longest, 20*time.Second)
				assert.Positive(w, longest)
				assert.Equal(w, 1, w.log.said(wentAway))

				claims := h.count("claim")
				id := w.orphan(1)[0]
				h.let()
				w.wait(DefaultLease + 40*time.Second)
				require.NoError(w, s.Ready())
				assert.Greater(w, h.count("claim"), claims)
				assert.Equal(w, every < 0, w.recoveredAt(id).IsZero())
				w.stop(s)
			})
		})
	}
}
