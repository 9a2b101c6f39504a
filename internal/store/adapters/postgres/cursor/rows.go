package cursor

import "time"

// Rows says where to begin to read rows of a queue that a sequence numbers, and of which readers delete the first ones: without it, a reader passes the
// entries of all rows that were deleted since the last vacuum.
//
// The mark is exact. A transaction takes its own number before it numbers rows. So once all transactions have ended that took theirs before some moment, every row
// that appears has a number which the sequence gave later. A reader then moves the mark to the first row that it sees, but never beyond a number that
// was seen before that moment.
type Rows struct {
	mark   int64     // there is no row before it, nor ever will be
	latest int64     // the greatest number seen
	seen   time.Time // when it was, by the process's monotonic clock
	bound  int64     // transactions with the number given, and later ones, give only greater numbers
	given  int64
	whole  time.Time // when rows were last read from the head
}

// An Opening is what the opening of a transaction has shown: see [Cursors.Learn].
type Opening struct {
	XMin, Number int64
	Sent         time.Time
}

// FirstRow returns the number from which on to read rows. It is zero every [LookEvery], in case the sequence has begun anew.
func (p *Plan) FirstRow() int64 {
	if time.Since(p.kept.Rows.whole) > LookEvery {
		return 0
	}
	return p.kept.Rows.mark
}

// SawRows notes that rows were read from that number on by a transaction with this opening, and the numbers of the first and the last that it has seen: zero
// if there were none.
func (p *Plan) SawRows(from, first, last int64, by Opening) {
	p.change(func(q *Queue) { q.Rows.saw(from, first, last, by) })
}

func (r *Rows) saw(from, first, last int64, by Opening) {
	if from == 0 {
		r.whole, r.mark = time.Now(), 0
	}
	if by.Number == 0 {
		return
	}
	if r.given <= by.XMin {
		to := r.bound + 1
		if first > 0 {
			to = min(to, first)
		}
		r.mark = max(r.mark, to)
		if r.seen.Before(by.Sent) {
			r.bound, r.given = r.latest, by.Number
		}
	}
	if last > r.latest {
		r.latest, r.seen = last, time.Now()
	}
}
