package browser

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// A flow is what a queue gets and does, minute by minute.
type flow struct {
	queue, kind, worker string
	tags                []string
	each                int           // jobs a minute
	runs                time.Duration // how long half of the runs take at most
	stops               time.Duration // how long before the end of the past the worker takes its last job
	payload             func(n int) any
	result              func(n int) any

	failing int                // percent of the runs
	trouble int                // the same in the 15 minutes before the worker stops; zero means no trouble
	fails   func(n int) string // why a run fails
	never   bool               // whether a job that has failed is dead at once
}

var flows = []flow{
	{
		queue: "mail", kind: "mail.receipt", worker: "mail-1", tags: []string{"shop"}, each: 11, runs: 700 * time.Millisecond, stops: mailStops,
		payload: func(n int) any { return map[string]any{"to": person(n), "order": 480000 + n, "template": "receipt"} },
		result:  func(n int) any { return map[string]any{"message_id": fmt.Sprintf("<%d@mail.example.org>", 7000000+n)} },
		failing: 3, fails: func(n int) string {
			return fmt.Sprintf("smtp: 450 4.2.1 mailbox %q is busy, try again later", person(n))
		},
	},
	{
		queue: "mail", kind: "mail.welcome", worker: "mail-1", tags: []string{"signup"}, each: 4, runs: 600 * time.Millisecond, stops: mailStops,
		payload: func(n int) any { return map[string]any{"to": person(n), "locale": "de-DE", "template": "welcome"} },
		failing: 2, never: true, fails: func(n int) string { return fmt.Sprintf("smtp: 550 5.1.1 no such user: %q", person(n)) },
	},
	{
		queue: "images", kind: "images.resize", worker: "images-1", tags: []string{"uploads"}, each: 6, runs: 6 * time.Second,
		payload: func(n int) any {
			return map[string]any{"upload": fmt.Sprintf("u-%06d", n), "widths": []int{320, 640, 1280}, "format": "avif"}
		},
		result:  func(n int) any { return map[string]any{"files": 3, "bytes": 81234 + 17*n} },
		failing: 4, never: true, fails: func(n int) string {
			return fmt.Sprintf("decode upload u-%06d: unexpected EOF at byte %d", n, 4096*(n%90)+n%511)
		},
	},
	{
		queue: "billing", kind: "billing.charge", worker: "billing-1", tags: []string{"stripe", "eu"}, each: 2, runs: 2 * time.Second, stops: billStops,
		payload: func(n int) any {
			return map[string]any{"customer": fmt.Sprintf("c-%d", 1000+n%300), "amount": fmt.Sprintf("%d.%02d", 5+n%95, n%100), "currency": "EUR"}
		},
		result:  func(n int) any { return map[string]any{"charge": fmt.Sprintf("ch_%08d", n)} },
		failing: 4, trouble: 85, fails: func(n int) string {
			return fmt.Sprintf("gateway: 502 Bad Gateway (request %08d, after 30.%ds)", 31*n, n%10)
		},
	},
	{
		queue: "billing", kind: "billing.refund", worker: "billing-1", tags: []string{"stripe", "eu"}, each: 1, runs: time.Second, stops: billStops,
		payload: func(n int) any { return map[string]any{"charge": fmt.Sprintf("ch_%08d", n), "reason": "returned"} },
		failing: 5, never: true, fails: func(n int) string {
			return fmt.Sprintf("refund ch_%08d: already refunded\ngoroutine 81 [running]:\nbilling.(*Client).Refund(0xc000%06x)\n\tbilling/refund.go:%d", n, n, 40+n%9)
		},
	},
}

// flow plans a step of a flow.
func (p *past) flow(f flow, at, step time.Duration) {
	n := f.each + p.random.IntN(f.each+1) - f.each/2
	if step > time.Minute {
		n = n/2 + 1 // the older part is thinner, so that it is written sooner
	}
	begin := p.now.Add(at)
	p.at(begin, func(ctx context.Context) error {
		jobs := make([]jq.NewJob, n)
		for i := range jobs {
			p.n++
			jobs[i] = jq.NewJob{Queue: f.queue, Kind: f.kind, Tags: f.tags, Payload: document(f.payload(p.n))}
		}
		_, err := p.enqueue(ctx, jobs...)
		return err
	})
	if at >= -f.stops {
		return
	}
	wait := 200*time.Millisecond + time.Duration(p.random.IntN(3000))*time.Millisecond
	p.at(begin.Add(wait), func(ctx context.Context) error {
		jobs, err := p.store.FetchAndClaim(ctx, contract.ClaimRequest{Queue: f.queue, Limit: 200, RetryQuota: 100, Worker: f.worker, TTL: 5 * time.Minute})
		for _, job := range jobs {
			p.run(job)
		}
		return err
	})
}

// run plans the end of a run.
func (p *past) run(job jq.Job) {
	var f flow
	for _, of := range flows {
		if of.kind == job.Kind {
			f = of
		}
	}
	if f.kind == "" { // a job of a schedule
		f = flow{kind: job.Kind, runs: 20 * time.Second}
	}
	took := time.Duration(float64(f.runs) * (0.4 + 1.2*p.random.Float64()))
	if p.random.IntN(20) == 0 {
		took *= 4
	}
	failing := f.failing
	if ago := p.now.Sub(p.clock.Now()); f.trouble > 0 && ago < f.stops+15*time.Minute {
		failing = f.trouble
	}
	fails := p.random.IntN(100) < failing
	n := int(job.ID)
	p.at(p.clock.Now().Add(took), func(ctx context.Context) error {
		if !fails {
			p.note(job, func(a *contract.Activity) { a.Succeeded++ })
			ack := contract.Ack{Lease: job.Lease()}
			if f.result != nil {
				ack.Result = document(f.result(n))
			}
			return ended(p.store.Ack(ctx, []contract.Ack{ack}))
		}
		form := contract.Fail
		if f.never {
			form = contract.Never
		}
		p.note(job, func(a *contract.Activity) {
			if f.never || job.Retries >= job.MaxRetries {
				a.Dead++
			} else {
				a.Retried++
			}
		})
		return ended(p.store.NAck(ctx, []contract.NAck{{Lease: job.Lease(), Form: form, Error: f.fails(n)}}))
	})
}

// ended returns an error if an outcome is not ok.
func ended(outcomes []jq.Outcome, err error) error {
	for _, o := range outcomes {
		if err == nil {
			err = o.Err()
		}
	}
	return err
}
