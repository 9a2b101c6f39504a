package memory

import (
	"iter"
	"slices"
)

// A table finds jobs by id and lists them in the order of their ids. Ids only grow, so live ids lie close together. The table
// keeps them in pages, and drops a page when its last job is removed.
type table struct {
	pages map[int64]*page
	order []int64 // the numbers of the pages, in ascending order
}

const pageSize = 256

type page struct {
	jobs  [pageSize]*job
	count int
}

func (t *table) get(id int64) *job {
	p := t.pages[id/pageSize]
	if p == nil || id < 0 {
		return nil
	}
	return p.jobs[id%pageSize]
}

// add adds a job. Its id must be greater than all others.
func (t *table) add(j *job) {
	number := j.ID / pageSize
	p := t.pages[number]
	if p == nil {
		p = &page{}
		if t.pages == nil {
			t.pages = map[int64]*page{}
		}
		t.pages[number] = p
		t.order = append(t.order, number)
	}
	p.jobs[j.ID%pageSize] = j
	p.count++
}

func (t *table) remove(id int64) {
	number := id / pageSize
	p := t.pages[number]
	p.jobs[id%pageSize] = nil
	p.count--
	if p.count == 0 {
		delete(t.pages, number)
		index, _ := slices.BinarySearch(t.order, number)
		t.order = slices.Delete(t.order, index, index+1)
	}
}

// rising lists the jobs with an id greater than after, in ascending order.
func (t *table) rising(after int64) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		start, _ := slices.BinarySearch(t.order, max(after, 0)/pageSize)
		for _, number := range t.order[start:] {
			for _, j := range t.pages[number].jobs {
				if j != nil && j.ID > after && !yield(j) {
					return
				}
			}
		}
	}
}

// falling lists the jobs with an id smaller than before, in descending order.
func (t *table) falling(before int64) iter.Seq[*job] {
	return func(yield func(*job) bool) {
		start, found := slices.BinarySearch(t.order, max(before, 0)/pageSize)
		if found {
			start++
		}
		for _, number := range slices.Backward(t.order[:start]) {
			for _, j := range slices.Backward(t.pages[number].jobs[:]) {
				if j != nil && j.ID < before && !yield(j) {
					return
				}
			}
		}
	}
}
