package remote

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/linear"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A thief is a proxy that passes requests on, and steals some of the answers: when one comes back, which is after the commit, it
// cuts the connection in its place, or in the middle of it.
type thief struct {
	to      string
	percent int
	stolen  *atomic.Int64
	passed  *atomic.Int64

	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool
	closed   bool
}

func newThief(to string, percent int, stolen, passed *atomic.Int64) (*thief, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &thief{to: to, percent: percent, stolen: stolen, passed: passed, listener: l, conns: map[net.Conn]bool{}}
	p.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(conn) })
		}
	})
	return p, nil
}

func (p *thief) url() string { return "http://" + p.listener.Addr().String() }

// keep remembers the connection, to end it with the proxy.
func (p *thief) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = true
	}
	return !p.closed
}

func (p *thief) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *thief) serve(client net.Conn) {
	defer p.drop(client)
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(client) || !p.keep(server) {
		return
	}
	var requests sync.WaitGroup
	requests.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	p.answers(client, server)
	_, _ = client.Close(), server.Close()
	requests.Wait()
}

// answers passes on what the server says. The answers of these tests mostly come in one piece each.
func (p *thief) answers(client, server net.Conn) {
	piece := make([]byte, 64<<10)
	for {
		n, err := server.Read(piece)
		if err != nil {
			return
		}
		if rand.IntN(100) < p.percent {
			_, _ = client.Write(piece[:rand.IntN(2)*rand.IntN(n)]) // half of them as a whole
			p.stolen.Add(1)
			return
		}
		if _, err := client.Write(piece[:n]); err != nil {
			return
		}
		p.passed.Add(1)
	}
}

func (p *thief) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// throughThieves makes stores behind a proxy that steals so many answers.
func throughThieves(percent int, stolen, passed *atomic.Int64) conformance.Adapter {
	return conformance.Adapter{New: func(ctx context.Context, clk clock.Clock) (*conformance.Instance, error) {
		server, err := serve(memory.New(memory.Options{Clock: clk}), httpapi.Options{})
		if err != nil {
			return nil, err
		}
		p, err := newThief(server.address, percent, stolen, passed)
		if err != nil {
			return nil, err
		}
		var s *Store
		for s == nil { // the answer to Open can be stolen too
			if s, err = Open(ctx, p.url(), nil); err != nil && !errors.Is(err, store.ErrUnavailable) {
				return nil, err
			}
		}
		return &conformance.Instance{Store: patient{s}, Remove: func() error {
			err := s.Close()
			p.close()
			return errors.Join(err, server.stop())
		}}, nil
	}}
}

// A patient store lists again what was stolen twice: to it the suite is not prepared, for a listing is no part of a history.
type patient struct{ *Store }

func (p patient) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	for {
		got, err := p.Store.List(ctx, filter, page)
		if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
			return got, err
		}
	}
}

// TestHistoriesWithStolenAnswers: concurrent histories are linearizable, where a call in doubt may have happened or not. Beside
// the answers that the suite itself loses, the network loses them after the commit.
func TestHistoriesWithStolenAnswers(t *testing.T) {
	histories := 160
	if race.Enabled {
		histories = 25
	}
	var stolen, passed atomic.Int64
	report, err := linear.Check(t.Context(), throughThieves(4, &stolen, &passed), linear.Options{Histories: histories})
	require.NoError(t, err)
	assert.Positive(t, stolen.Load())
	assert.NoError(t, report.Shortfall())
	figures.Print(t, "%s: %d answers stolen after the commit, %d passed on: %v", t.Name(), stolen.Load(), passed.Load(), report)
}

// TestStolenAnswersToEnqueue: what was enqueued is there once, whatever was lost and repeated; what was in doubt is there once or
// not at all.
func TestStolenAnswersToEnqueue(t *testing.T) {
	const callers, each = 8, 30
	var stolen, passed atomic.Int64
	clk := clock.NewMock()
	instance, err := throughThieves(30, &stolen, &passed).New(t.Context(), clk)
	require.NoError(t, err)
	defer func() { require.NoError(t, instance.Remove()) }()
	s := instance.Store
	var mu sync.Mutex
	answered := map[int64]string{}
	doubts := map[string]bool{}
	var enqueuing sync.WaitGroup
	for i := range callers {
		enqueuing.Go(func() {
			for n := range each {
				kind := string(rune('a'+i)) + time.Duration(n).String()
				added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain(kind), plain(kind)}})
				mu.Lock()
				switch {
				case err == nil:
					answered[added[0].ID], answered[added[1].ID] = kind, kind
				case assert.ErrorIs(t, err, store.ErrInDoubt):
					doubts[kind] = true
				}
				mu.Unlock()
			}
		})
	}
	enqueuing.Wait()
	found := map[string]int{}
	for _, j := range listAll(t, s) {
		found[j.Kind]++
		if !doubts[j.Kind] {
			assert.Equal(t, j.Kind, answered[j.ID], "the answer for job %d", j.ID)
		}
	}
	for kind, n := range found {
		assert.Equal(t, 2, n, "jobs of the call %s", kind)
	}
	assert.Len(t, answered, 2*(callers*each-len(doubts)))
	assert.Positive(t, stolen.Load())
	figures.Print(t, "%s: %d calls, %d answers stolen after the commit, %d calls in doubt at the end", t.Name(), callers*each, stolen.Load(), len(doubts))
}

// listAll reads every job, page by page.
func listAll(t *testing.T, s store.Store) []store.Job {
	t.Helper()
	var all []store.Job
	for page := (store.Page{Limit: 200}); ; {
		got, err := s.List(t.Context(), store.Filter{}, page)
		require.NoError(t, err)
		if all = append(all, got.Jobs...); got.Next == "" {
			return all
		}
		page.Cursor = got.Next
	}
}
