package conformance

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var monitorCases = []Case{
	{"Monitor/PingAnswers", "Ping checks that the store answers, and that it contains what this program keeps in it.", monitorPingAnswers},
	{"Monitor/QueuesWithAJobThatIsDue", "OldestDue returns the queues from which a claim could take a job now if no queue were paused or limited, in bytewise order of name.", monitorQueuesWithAJobThatIsDue},
	{"Monitor/TheEarliestDueTime", "Each queue comes with the earliest due time of those jobs.", monitorTheEarliestDueTime},
	{"Monitor/RefusesAsTheCoreDoes", sentenceRefusals, monitorRefusesAsTheCoreDoes},
}

func (c *C) monitor() store.Monitor { return ability[store.Monitor](c) }

func (c *C) oldestDue() store.Due {
	due, err := c.monitor().OldestDue(c.Ctx)
	c.OK(err, "OldestDue")
	return due
}

func monitorPingAnswers(c *C) {
	c.OK(c.monitor().Ping(c.Ctx), "Ping")
}

// Of all phases only ready and retrying jobs can be due, unless they have expired, each from its own time on, whether its queue is paused or not.
func monitorQueuesWithAJobThatIsDue(c *C) {
	for _, phase := range []store.State{store.InFlight, store.Succeeded, store.Dead, store.Cancelled} {
		c.JobIn(phase)
	}
	c.Enqueue(c.expiring(store.Resolution))
	c.Advance(store.Resolution)
	c.Equal(c.oldestDue(), store.Due{Now: c.Now()}, "nothing is due, and a job has expired")
	retryAt := c.JobIn(store.Retrying).RetryAt
	names := []string{"b", "B", "a"}
	delay := retryAt.Sub(c.Now())
	for _, name := range names {
		c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue, n.Delay = name, delay }))
	}
	c.Advance(delay - time.Microsecond)
	c.Equal(c.oldestDue(), store.Due{Now: c.Now()}, "a microsecond before they are due")
	c.Advance(time.Microsecond)
	var want []store.QueueDue
	for _, name := range []string{"B", "a", "b", queue} {
		want = append(want, store.QueueDue{Queue: name, OldestDue: retryAt})
	}
	c.setPaused("a", true)
	c.Equal(c.oldestDue(), store.Due{Now: c.Now(), Queues: want}, "when they are due, and one of them paused")
}

// The longest waiting job is neither the first by priority nor the first by id, and may be a retry.
func monitorTheEarliestDueTime(c *C) {
	began := c.Now()
	add := func(name string, priority int, delay time.Duration) {
		c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue, n.Priority, n.Delay = name, priority, delay }))
	}
	for i, name := range []string{"x", "y"} {
		add(name, store.MaxPriority, 30*time.Second)
		add(name, 0, time.Duration(20+i)*time.Second)
		add(name, 0, time.Hour)
		add(name, store.MinPriority, time.Duration(10+i)*time.Second)
		add(name, store.MinPriority, 25*time.Second)
	}
	retryAt := c.JobIn(store.Retrying).RetryAt
	add(queue, store.MaxPriority, 30*time.Second)
	c.Advance(time.Minute)
	c.Equal(c.oldestDue(), store.Due{Now: c.Now(), Queues: []store.QueueDue{
		{Queue: queue, OldestDue: retryAt}, {Queue: "x", OldestDue: began.Add(10 * time.Second)}, {Queue: "y", OldestDue: began.Add(11 * time.Second)},
	}}, "the earliest of each queue")
}

func monitorRefusesAsTheCoreDoes(c *C) {
	monitor := c.monitor()
	c.refusesAsTheCoreDoes(abilityCalls{
		"Ping":      unnamed(monitor.Ping),
		"OldestDue": unnamed(func(ctx context.Context) error { _, err := monitor.OldestDue(ctx); return err }),
	}, func() {})
}
