package server

// A runSet is the runs that are held, in no order. Each knows its place, so that it comes and goes without being looked for.
type runSet []*Run

// has says whether the run is on it.
func (l runSet) has(r *Run) bool { return r.place > 0 && r.place <= len(l) && l[r.place-1] == r }

func (l *runSet) add(r *Run) {
	*l = append(*l, r)
	r.place = len(*l)
}

// remove strikes the run, if it is on the roster. The last one takes its place.
func (l *runSet) remove(r *Run) {
	if !l.has(r) {
		return
	}
	end := len(*l) - 1
	last := (*l)[end]
	(*l)[r.place-1], last.place = last, r.place
	(*l)[end], r.place = nil, 0
	*l = (*l)[:end]
}
