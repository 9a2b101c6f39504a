package memory

import (
	"time"
)

// A line is jobs in the order of a time, and of their ids where it is the same. Most jobs come in that order already, for
// the store's now only grows: they stand in a fifo, where coming and going costs the same however many there are. The
// others stand in a heap beside it.
type line struct {
	fifo  fifo
	aside heap[*job]
}

// push lets a job stand in the line. One that comes early, long before its time, must stand aside, or those that come
// after it would have to.
func (l *line) push(j *job, at time.Time, early bool) {
	j.line, j.at = l, at.UnixMicro()
	if !early && l.fifo.fits(j) {
		l.fifo.push(j)
	} else {
		j.inFifo = false
		l.aside.push(j.at, j.ID, j)
	}
}

// first is the job at the head, if its time is not after the given one; else nil.
func (l *line) first(until int64) *job {
	first := l.fifo.first()
	if first != nil && first.at > until {
		first = nil
	}
	if j, ok := l.aside.first(until); ok && (first == nil || j.before(first)) {
		first = j
	}
	return first
}

// leave takes the job out of its line, if it stands in one.
func (j *job) leave() {
	switch {
	case j.line == nil:
	case j.inFifo:
		j.line.fifo.remove(int(j.index))
	default:
		j.line.aside.remove(int(j.index))
	}
	j.line = nil
}

// before says whether j comes earlier in a line.
func (j *job) before(other *job) bool {
	if j.at != other.at {
		return j.at < other.at
	}
	return j.ID < other.ID
}

// moved notes the place in the heap.
func (j *job) moved(to int) { j.index = int32(to) }

// A fifo is jobs that arrived in order. Who leaves from between leaves a gap; first and last are never gaps.
type fifo struct {
	slots []*job
	head  int // the index of the first
	count int // without the gaps
}

// fifoSlack is how many gaps a fifo may have beyond one for each job, so that short ones are not tidied all the time.
const fifoSlack = 64

func (f *fifo) first() *job {
	if f.count == 0 {
		return nil
	}
	return f.slots[f.head]
}

// fits says whether the job can stand at the end.
func (f *fifo) fits(j *job) bool {
	return f.count == 0 || f.slots[len(f.slots)-1].before(j)
}

func (f *fifo) push(j *job) {
	j.inFifo, j.index = true, int32(len(f.slots))
	f.slots = append(f.slots, j)
	f.count++
}

func (f *fifo) remove(index int) {
	f.slots[index] = nil
	f.count--
	if f.count == 0 {
		f.head, f.slots = 0, f.slots[:0]
		return
	}
	for f.slots[f.head] == nil {
		f.head++
	}
	for f.slots[len(f.slots)-1] == nil {
		f.slots = f.slots[:len(f.slots)-1]
	}
	if len(f.slots) > 2*f.count+fifoSlack {
		f.tidy()
	}
}

// tidy closes the gaps, and lets go of memory that a shorter fifo does not need. It moves fewer jobs than have left since
// the last time, so that leaving costs the same on average however long the fifo is.
func (f *fifo) tidy() {
	kept := make([]*job, 0, f.count+f.count/2+fifoSlack)
	for _, j := range f.slots[f.head:] {
		if j != nil {
			j.index = int32(len(kept))
			kept = append(kept, j)
		}
	}
	f.head, f.slots = 0, kept
}
