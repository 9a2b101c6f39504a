package memory

// A line keeps jobs in the order of a time, and jobs with the same time in the order of their ids. The store's time only grows,
// so most jobs arrive in that order. Those go into a fifo, where adding and removing a job costs the same whatever the length.
// The other jobs go into a heap beside it.
type line struct {
	fifo  fifo
	aside heap[*job]
	key   *keyLine // what the line is a part of, or nil
}

// push lets a job stand in the line. One that comes early, long before its time, must stand aside, or those that come
// after it would have to.
func (l *line) push(j *job, early bool) {
	j.line = l
	if !early && l.fifo.fits(j) {
		l.fifo.push(j)
	} else {
		j.inFifo = false
		l.aside.push(j.at(), j.ID, j)
	}
	if l.key != nil {
		l.key.settle()
	}
}

// first returns the job at the head, or nil if its time is after until.
func (l *line) first(until int64) *job {
	first := l.fifo.first()
	if first != nil && first.at() > until {
		first = nil
	}
	if j, ok := l.aside.first(until); ok && (first == nil || j.before(first)) {
		first = j
	}
	return first
}

// leave removes the job from its line, if it is in one.
func (j *job) leave() {
	l := j.line
	switch {
	case l == nil:
		return
	case j.inFifo:
		l.fifo.remove(int(j.index))
	default:
		l.aside.remove(int(j.index))
	}
	j.line = nil
	if l.key != nil {
		l.key.settle()
	}
}

// firstOf returns the job that comes first in a line, or the only one that is there.
func firstOf(a, b *job) *job {
	if a == nil || b != nil && b.before(a) {
		return b
	}
	return a
}

// before reports whether j comes before the other job in a line.
func (j *job) before(other *job) bool {
	at, otherAt := j.at(), other.at()
	if at != otherAt {
		return at < otherAt
	}
	return j.ID < other.ID
}

// at is the time by which the job stands in its line, in microseconds. It does not change before the job leaves.
func (j *job) at() int64 { return j.next().unix() }

// moved notes the place in the heap.
func (j *job) moved(to int) { j.index = int32(to) }

// A fifo keeps jobs that arrived in order. Removing a job from the middle leaves a gap. The first and the last slot are never
// gaps.
type fifo struct {
	slots []*job
	head  int // the index of the first
	count int // of jobs, not of slots
}

// fifoSlack is how many gaps a fifo may have in addition to one for each job, so that a short fifo is not tidied all the time.
const fifoSlack = 64

func (f *fifo) first() *job {
	if f.count == 0 {
		return nil
	}
	return f.slots[f.head]
}

// fits reports whether the job may go to the end.
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

// tidy closes the gaps and frees memory that a shorter fifo does not need. It moves fewer jobs than were removed since the last
// tidy. So removing a job costs the same on average, however long the fifo is.
func (f *fifo) tidy() {
	kept := f.slots[:0]
	if room := f.count + f.count/2 + fifoSlack; cap(f.slots) > 2*room {
		kept = make([]*job, 0, room)
	}
	for _, j := range f.slots[f.head:] {
		if j != nil {
			j.index = int32(len(kept))
			kept = append(kept, j)
		}
	}
	if end := len(f.slots); cap(kept) == cap(f.slots) {
		clear(f.slots[len(kept):end])
	}
	f.head, f.slots = 0, kept
}
