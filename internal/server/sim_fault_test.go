package server_test

import "time"

// A fault is what can go wrong, or what people do meanwhile. Each is counted, and must occur.
type fault string

// The faults of a single call.
const (
	refused fault = "calls refused"
	lost    fault = "replies lost after the commit"
	delayed fault = "calls delayed"
	stalled fault = "calls that hang and are never applied"
	late    fault = "calls applied after their caller gave up"
	deaf    fault = "calls that hang beyond their context"
	dropped fault = "wake-ups lost"
)

// The faults of a whole server or store, and what people do.
const (
	partitioned   fault = "partitions longer than a lease"
	storeDied     fault = "deaths of the store"
	serverDied    fault = "deaths of a server"
	serverStopped fault = "stops of a server"
	queuePaused   fault = "pauses of a queue"
	jobCancelled  fault = "cancels"
	jobRequeued   fault = "requeues"
)

const longStalls = "stalls longer than every lease"

var faults = []fault{
	refused, lost, delayed, stalled, late, deaf, dropped,
	partitioned, storeDied, serverDied, serverStopped, queuePaused, jobCancelled, jobRequeued,
}

// A fate is what happens to one call.
type fate struct {
	fault       fault
	lasts       time.Duration
	after       bool          // a deaf call is applied at once, and its answer comes late
	there, back time.Duration // how long it is on the way
}

// fate decides about the next call of the method.
func (l *link) fate(method string) fate {
	l.mu.Lock()
	l.calls[method]++
	n := l.calls[method]
	l.mu.Unlock()
	d := dice(l.sim.seed, l.name+"/"+method, n)
	f := fate{lasts: between(d, 50*time.Millisecond, maxStall), after: d.IntN(2) == 0}
	if d.IntN(2) == 0 {
		f.there, f.back = between(d, 0, 4*time.Millisecond), between(d, 0, 4*time.Millisecond)
	}
	if !l.sim.faulty() {
		return f
	}
	roll := d.Float64()
	for _, r := range l.sim.rates {
		if roll -= r.part; roll < 0 {
			if f.fault = r.fault; f.fault == deaf && method == "Save" {
				f.fault = stalled // or else the handler that saves could not heed its context
			}
			l.suffer(method, f)
			break
		}
	}
	return f
}

// suffer records what happens to a call.
func (l *link) suffer(method string, f fate) {
	l.sim.count(f.fault)
	l.sim.trace(0, l.name, method, string(f.fault), f.lasts)
	switch f.fault {
	case refused, lost:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failures = append(l.failures, failure{time.Now(), method})
	default:
		if f.fault != delayed && f.lasts > maxLease {
			l.sim.countNamed(longStalls)
		}
		l.trouble(method, f.lasts+10*time.Millisecond)
		if f.fault == deaf {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.deafUntil = latest(l.deafUntil, time.Now().Add(f.lasts+10*time.Millisecond))
		}
	}
}
