package browser

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/schedule"
)

// schedules declares the schedules. They fire in the past too.
func (p *past) schedules(ctx context.Context) error {
	job := func(queue, kind string, payload any) jq.NewJob {
		return jq.NewJob{Queue: queue, Kind: kind, Payload: document(payload), MaxRetries: 3, Backoff: jq.Backoff{Base: time.Minute, Cap: time.Hour}}
	}
	for _, s := range []jq.Schedule{
		{Name: "nightly", Cron: "0 2 * * *", Timezone: "Europe/Berlin", Job: job("reports", "reports.nightly", map[string]any{"of": "yesterday"}), Overlap: jq.OverlapSkip},
		{Name: "rollup", Cron: "@every 15m", Job: job("reports", "reports.rollup", map[string]any{"tables": []string{"orders", "visits"}})},
		{Name: "weekly-digest", Cron: "30 7 * * MON", Timezone: "America/New_York", Job: job("mail", "mail.digest", map[string]any{"list": "all"})},
		{Name: "month-end", Cron: "0 0 1 * *", Timezone: "Europe/London", Job: job("billing", "billing.close", map[string]any{})},
		{Name: "purge-uploads", Cron: "0 4 * * SUN", Job: job("images", "images.purge", map[string]any{"older_than": "720h"}), Paused: true},
	} {
		if _, err := schedule.Put(ctx, p.store, s); err != nil {
			return err
		}
	}
	return nil
}

// report plans that reports-1 takes what the schedules have enqueued, until the odd jobs begin.
func (p *past) report(at time.Duration) {
	if at > -10*time.Minute {
		return
	}
	p.at(p.now.Add(at+900*time.Millisecond), func(ctx context.Context) error {
		jobs, err := p.claim(ctx, "reports", "reports-1", 100)
		for _, job := range jobs {
			p.run(job)
		}
		return err
	})
}

// odds plans single jobs: one that was put off, cancelled ones, and some for later.
func (p *past) odds() {
	p.ago(9*time.Minute, func(ctx context.Context) error {
		_, err := p.enqueue(ctx, jq.NewJob{
			Queue: "reports", Kind: "reports.build", Tags: []string{"finance"}, Priority: 5, Payload: document(map[string]any{"month": "2026-10", "for": "finance"}),
		})
		return err
	})
	p.ago(8*time.Minute, func(ctx context.Context) error {
		jobs, err := p.claim(ctx, "reports", "reports-1", 200)
		for _, job := range jobs {
			if job.Kind != "reports.build" {
				p.run(job)
				continue
			}
			p.at(p.clock.Now().Add(3*time.Second), func(ctx context.Context) error {
				return ended(p.store.NAck(ctx, []contract.NAck{{
					Lease: job.Lease(), Form: contract.Snooze, Delay: 40 * time.Minute, Error: "the export of October is not there yet",
				}}))
			})
		}
		return err
	})
	p.ago(10*time.Second, func(ctx context.Context) error { // for the worker that runs when the past is over
		for n := range 3 {
			if _, err := p.enqueue(ctx, jq.NewJob{Queue: "images", Kind: "images.resize", Tags: []string{"uploads"}, Payload: document(flows[2].payload(990000 + n))}); err != nil {
				return err
			}
		}
		return nil
	})
	p.ago(6*time.Minute, p.blocked)
	p.ago(7*time.Minute, func(ctx context.Context) error {
		added, err := p.enqueue(ctx,
			jq.NewJob{Queue: "mail", Kind: "mail.digest", Tags: []string{"newsletter"}, Delay: 3 * time.Hour, Payload: document(map[string]any{"list": "weekly"})},
			jq.NewJob{Queue: "mail", Kind: "mail.digest", Tags: []string{"newsletter"}, Delay: 5 * time.Hour, Payload: document(map[string]any{"list": "beta"})},
			jq.NewJob{Queue: "images", Kind: "images.purge", Delay: time.Hour, Payload: document(map[string]any{"bucket": "drafts"})},
		)
		if err == nil {
			_, err = p.store.Cancel(ctx, jq.Filter{IDs: []int64{added[2].ID}}, 1)
		}
		return err
	})
}

// blocked enqueues a job that waits for another one, and for a dead one. A third one has succeeded.
func (p *past) blocked(ctx context.Context) error {
	added, err := p.enqueue(ctx, jq.NewJob{
		Queue: "billing", Kind: "billing.collect", Tags: []string{"finance"}, Delay: 2 * time.Hour, Payload: document(map[string]any{"month": "2026-10"}),
	})
	if err != nil {
		return err
	}
	after := []jq.Wait{{ID: added[0].ID, Any: true}}
	for _, phase := range []jq.State{jq.Succeeded, jq.Dead} {
		page, err := p.store.List(ctx, jq.Filter{Kind: "billing.refund", States: []jq.State{phase}}, jq.Page{Limit: 1})
		if err != nil {
			return err
		}
		after = append(after, jq.Wait{ID: page.Jobs[0].ID})
	}
	_, err = p.enqueue(ctx, jq.NewJob{
		Queue: "billing", Kind: "billing.statement", Tags: []string{"finance"}, After: after, Payload: document(map[string]any{"month": "2026-10"}),
	})
	return err
}

func (p *past) claim(ctx context.Context, queue, worker string, limit int) ([]jq.Job, error) {
	return p.store.FetchAndClaim(ctx, contract.ClaimRequest{Queue: queue, Limit: limit, RetryQuota: limit, Worker: worker, TTL: time.Minute})
}

// lost plans the end of the worker reports-2: it takes a job, saves a checkpoint, and is not heard of again. Its lease is recovered.
func (p *past) lost() {
	p.ago(workerDies+time.Minute, func(ctx context.Context) error {
		_, err := p.enqueue(ctx, jq.NewJob{
			Queue: "reports", Kind: "reports.export", Tags: []string{"finance"}, Payload: document(map[string]any{"table": "orders", "rows": 1200000}),
			Backoff: jq.Backoff{Base: 10 * time.Second, Cap: time.Minute},
		})
		return err
	})
	p.ago(workerDies, func(ctx context.Context) error {
		if err := p.store.Beat(ctx, jq.Worker{
			Name: "reports-2", Host: "worker-b", PID: 4711, Queues: []string{"reports"}, Slots: 4, Running: 1, StaleAfter: 30 * time.Second,
		}); err != nil {
			return err
		}
		jobs, err := p.claim(ctx, "reports", "reports-2", 10)
		for _, job := range jobs {
			if job.Kind != "reports.export" {
				p.run(job)
				continue
			}
			p.at(p.clock.Now().Add(20*time.Second), func(ctx context.Context) error {
				return ended(p.store.Save(ctx, []contract.Save{{
					Lease: job.Lease(), Seq: 1, Checkpoint: document(map[string]any{"row": 410000}), Progress: document(map[string]any{"done": 410000, "of": 1200000}),
				}}))
			})
			p.at(p.clock.Now().Add(80*time.Second), func(ctx context.Context) error {
				p.note(job, func(a *contract.Activity) { a.Recovered++ })
				_, err := p.store.RecoverExpiredLeases(ctx, contract.RecoverRequest{Limit: 100})
				return err
			})
		}
		return err
	})
}
