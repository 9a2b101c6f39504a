package memory

import (
	"iter"
	"slices"
)

// A table finds jobs by id and lists them in the order of their ids. Ids only grow, so live ids lie close together. The table
// keeps them in pages and these in chunks, and drops a page or a chunk when its last job is removed. The jobs of a chunk are
// allocated together, so a job that stays for long keeps the memory of a chunk.
type table struct {
	pages map[int64]*page
	order []int64 // the numbers of the pages, in ascending order
}

const pageSize, chunkSize = 256, 16

type page struct {
	chunks [pageSize / chunkSize]*chunk
	count  int // of jobs
}

type chunk struct {
	jobs  [chunkSize]job // the ID of one that is not there is zero
	count int
}

// chunk returns where the chunk of the id is.
func (p *page) chunk(id int64) **chunk { return &p.chunks[id%pageSize/chunkSize] }

func (c *chunk) at(id int64) *job { return &c.jobs[id%chunkSize] }

func (t *table) get(id int64) *job {
	p := t.pages[id/pageSize]
	if p == nil || id <= 0 {
		return nil
	}
	c := *p.chunk(id)
	if c == nil || c.at(id).ID == 0 {
		return nil
	}
	return c.at(id)
}

// add adds an empty job. Its id must be greater than all others.
func (t *table) add(id int64) *job {
	number := id / pageSize
	p := t.pages[number]
	if p == nil {
		p = &page{}
		if t.pages == nil {
			t.pages = map[int64]*page{}
		}
		t.pages[number] = p
		t.order = append(t.order, number)
	}
	c := p.chunk(id)
	if *c == nil {
		*c = &chunk{}
	}
	p.count++
	(*c).count++
	j := (*c).at(id)
	j.ID = id
	return j
}

func (t *table) remove(id int64) {
	number := id / pageSize
	p := t.pages[number]
	c := p.chunk(id)
	*(*c).at(id) = job{}
	if (*c).count--; (*c).count == 0 {
		*c = nil
	}
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
			for _, c := range t.pages[number].chunks {
				for i := 0; c != nil && i < chunkSize; i++ {
					if j := &c.jobs[i]; j.ID != 0 && j.ID > after && !yield(j) {
						return
					}
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
			for _, c := range slices.Backward(t.pages[number].chunks[:]) {
				for i := chunkSize - 1; c != nil && i >= 0; i-- {
					if j := &c.jobs[i]; j.ID != 0 && j.ID < before && !yield(j) {
						return
					}
				}
			}
		}
	}
}
