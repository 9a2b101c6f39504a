package peer

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// A Ledger records which jobs have begun. It is safe for concurrent use, and cheap even compared with the fastest queue.
type Ledger struct {
	pages [maxPages]atomic.Pointer[page]
	count atomic.Int64
	again atomic.Int64
	times []atomic.Int64 // when each job began, if requested
}

const (
	pageBits = 1 << 16
	maxPages = 1 << 14 // enough for 1e9 jobs
)

type page [pageBits / 64]atomic.Uint64

// NewLedger returns an empty ledger. It records the times of the first jobs, as many as times says.
func NewLedger(times int) *Ledger { return &Ledger{times: make([]atomic.Int64, times)} }

// Begin records that the job begins, and reports whether it does so for the first time. It panics if the number is out of
// range, which is a bug in the peer's adapter.
func (l *Ledger) Begin(number int64) (first bool) {
	if number < 0 || number >= maxPages*pageBits {
		panic(fmt.Sprintf("a job has the number %d: numbers run from 0 to %d", number, maxPages*pageBits-1))
	}
	if number < int64(len(l.times)) {
		l.times[number].CompareAndSwap(0, time.Now().UnixNano())
	}
	word, bit := &l.page(number)[number%pageBits/64], uint64(1)<<(number%64)
	if word.Or(bit)&bit != 0 {
		l.again.Add(1)
		return false
	}
	l.count.Add(1)
	return true
}

var errOnce = errors.New("this job fails once")

// Handle records that the job begins, and does what the job says.
func (l *Ledger) Handle(ctx context.Context, job Job) error {
	first := l.Begin(job.Number)
	if job.Millis > 0 {
		select {
		case <-time.After(time.Duration(job.Millis) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if job.Fails && first {
		return errOnce
	}
	return nil
}

func (l *Ledger) page(number int64) *page {
	at := &l.pages[number/pageBits]
	if p := at.Load(); p != nil {
		return p
	}
	at.CompareAndSwap(nil, new(page))
	return at.Load()
}

// Count returns how many different jobs have begun.
func (l *Ledger) Count() int64 { return l.count.Load() }

// Again returns how often a job has begun again.
func (l *Ledger) Again() int64 { return l.again.Load() }

// Began returns when the job began, or the zero time.
func (l *Ledger) Began(number int) time.Time {
	if at := l.times[number].Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Missing returns the number of the first job below jobs that has not begun, or -1.
func (l *Ledger) Missing(jobs int64) int64 {
	for number := int64(0); number < jobs; number += 64 {
		begun := l.page(number)[number%pageBits/64].Load()
		if first := number + int64(bits.TrailingZeros64(^begun)); ^begun != 0 && first < jobs {
			return first
		}
	}
	return -1
}

// Await returns when that many different jobs have begun.
func (l *Ledger) Await(ctx context.Context, jobs int64) error {
	return Until(ctx, func() (bool, error) { return l.Count() >= jobs, nil })
}

// Until asks every millisecond until the answer is yes.
func Until(ctx context.Context, ask func() (bool, error)) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}
