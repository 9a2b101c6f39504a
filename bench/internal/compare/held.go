package compare

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/peers"
	"github.com/seed-ed332417/jq/bench/internal/site"
)

// lone is how many jobs come one by one, in each of the two looks at what a job costs.
const lone = 100

// settled is how long lone jobs run before they count.
const settled = 5 * time.Second

// Held is how many blocks a queue makes Postgres look at for one of 100 lone jobs.
type Held struct {
	First, Last float64 // before and after many others
}

// snapshot lets the queues on Postgres work off jobs while another session holds a snapshot, and without. Blocks, unlike times, do not depend
// on what else the machine does. The answers are in the order of the subjects.
func snapshot(ctx context.Context, s *site.Site, o Options) ([]string, error) {
	var answers []string
	for _, id := range []string{"jq-postgres", "river-postgres"} {
		with, err := held(ctx, s, id, o.Jobs, true)
		if absence, ok := errors.AsType[*site.Absence](err); ok {
			answers = append(answers, "not tried: "+absence.Reason)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		without, err := held(ctx, s, id, o.Jobs, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		answer := fmt.Sprintf("%.0f before, %.0f after; without the snapshot %.0f before, %.0f after", with.First, with.Last, without.First, without.Last)
		fmt.Fprintf(o.Progress, "%s: %s\n", id, answer)
		answers = append(answers, answer)
	}
	return append(answers, "not tried: Redis has no snapshots that sessions hold"), nil
}

// held counts the blocks of lone jobs before and after so many others.
func held(ctx context.Context, s *site.Site, id string, jobs int, hold bool) (h Held, err error) {
	all := peers.All()
	p := all[slices.IndexFunc(all, func(p peer.Peer) bool { return p.ID() == id })]
	place, remove, err := s.Place(ctx, p)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b, err := countBlocks(ctx, place)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, b.admin.Close()) }()
	var done atomic.Int64
	queue, err := p.Open(ctx, place, func(context.Context, peer.Job) error { done.Add(1); return nil })
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, queue.Close(context.WithoutCancel(ctx))) }()
	if hold {
		release, err := site.Hold(ctx, place.DSN)
		if err != nil {
			return h, err
		}
		defer func() { _ = release() }() // nothing is written
	}
	if err := queue.Work(ctx, 10); err != nil {
		return h, err
	}
	r := &runner{queue: queue, done: &done}
	if h.First, err = b.each(ctx, r); err != nil {
		return h, err
	}
	if err := r.run(ctx, jobs); err != nil {
		return h, err
	}
	h.Last, err = b.each(ctx, r)
	return h, err
}

// A runner enqueues jobs and waits for their ends.
type runner struct {
	queue peer.Queue
	done  *atomic.Int64
	added int
}

// run enqueues so many jobs and waits until the store has the end of each.
func (r *runner) run(ctx context.Context, jobs int) error {
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	if err := r.queue.Enqueue(ctx, peer.Load{First: int64(r.added), Jobs: jobs, Callers: 1, Batch: min(jobs, 1000)}); err != nil {
		return err
	}
	r.added += jobs
	if err := peer.Until(ctx, func() (bool, error) { return r.done.Load() >= int64(r.added), nil }); err != nil {
		return fmt.Errorf("%d of %d jobs have run: %w", r.done.Load(), r.added, err)
	}
	return peer.Until(ctx, func() (bool, error) {
		counts, err := r.queue.Count(ctx)
		return counts.Unfinished == 0, err
	})
}

// blocks counts the blocks that the statements of a database look at.
type blocks struct {
	admin    *sql.DB
	database string
}

func countBlocks(ctx context.Context, place peer.Place) (*blocks, error) {
	config, err := pq.NewConfig(place.DSN)
	if err != nil {
		return nil, err
	}
	b := &blocks{database: config.Database}
	if b.admin, err = sql.Open("postgres", place.Admin); err != nil {
		return nil, err
	}
	name := pq.QuoteIdentifier(b.database)
	for _, statement := range []string{
		"CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
		"ALTER DATABASE " + name + " SET pg_stat_statements.track = top",
		"ALTER DATABASE " + name + " SET compute_query_id = on",
	} {
		if _, err := b.admin.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(&site.Absence{Reason: "the server has no pg_stat_statements"}, err, b.admin.Close())
		}
	}
	return b, nil
}

// each runs lone jobs, one after the other, and returns how many blocks one of them took. It does not count those of the first seconds, in
// which a queue may still have to do with the jobs before.
func (b *blocks) each(ctx context.Context, r *runner) (float64, error) {
	for began := time.Now(); time.Since(began) < settled; {
		if err := r.one(ctx); err != nil {
			return 0, err
		}
	}
	before, err := b.sum(ctx)
	if err != nil {
		return 0, err
	}
	for range lone {
		if err := r.one(ctx); err != nil {
			return 0, err
		}
	}
	after, err := b.sum(ctx)
	return float64(after-before) / lone, err
}

// one runs a job without counting the jobs of the store, which would cost more than the job.
func (r *runner) one(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	if err := r.queue.Enqueue(ctx, peer.Load{First: int64(r.added), Jobs: 1, Callers: 1, Batch: 1}); err != nil {
		return err
	}
	r.added++
	return peer.Until(ctx, func() (bool, error) { return r.done.Load() >= int64(r.added), nil })
}

func (b *blocks) sum(ctx context.Context) (n int64, err error) {
	err = b.admin.QueryRowContext(ctx, `
		SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint
		FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid
		WHERE datname = $1`, b.database).Scan(&n)
	return n, err
}
