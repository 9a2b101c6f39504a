package server

// A runSet is a set of runs. Each run knows its index in it, so that adding and removing need no search.
type runSet []*Run

// contains returns whether the run is in the set.
func (s runSet) contains(r *Run) bool {
	return r.index > 0 && int(r.index) <= len(s) && s[r.index-1] == r
}

func (s *runSet) add(r *Run) {
	*s = append(*s, r)
	r.index = int32(len(*s))
}

// remove removes the run if it is in the set. The last run takes its place.
func (s *runSet) remove(r *Run) {
	if !s.contains(r) {
		return
	}
	end := len(*s) - 1
	last := (*s)[end]
	(*s)[r.index-1], last.index = last, r.index
	(*s)[end], r.index = nil, 0
	*s = (*s)[:end]
}
