package memory

// A heap returns the value with the earliest time, and among equal times the one with the smallest id. Each value is told its
// index, so that it can be removed from any place.
type heap[T movable] struct {
	items []item[T]
}

type item[T any] struct {
	at, id int64
	value  T
}

// A movable value is told its index whenever the index changes, and -1 when it is removed.
type movable interface{ moved(to int) }

// first returns the value with the earliest time, if that time is at or before until.
func (h *heap[T]) first(until int64) (value T, ok bool) {
	if len(h.items) == 0 || h.items[0].at > until {
		return value, false
	}
	return h.items[0].value, true
}

func (h *heap[T]) push(at, id int64, value T) {
	h.items = append(h.items, item[T]{at, id, value})
	h.up(len(h.items) - 1)
}

// remove removes the value at the index.
func (h *heap[T]) remove(index int) {
	h.items[index].value.moved(-1)
	last := len(h.items) - 1
	moved := h.items[last]
	h.items[last] = item[T]{}
	h.items = h.items[:last]
	if index == last {
		return
	}
	h.items[index] = moved
	h.down(index)
	h.up(index)
}

// move gives the value at the index another time and id.
func (h *heap[T]) move(index int, at, id int64) {
	h.items[index].at, h.items[index].id = at, id
	h.down(index)
	h.up(index)
}

// up moves the item at the index towards the root until its parent comes before it.
func (h *heap[T]) up(index int) {
	rising := h.items[index]
	for index > 0 {
		parent := (index - 1) / 2
		if !rising.before(h.items[parent]) {
			break
		}
		h.set(index, h.items[parent])
		index = parent
	}
	h.set(index, rising)
}

// down moves the item at the index away from the root until it comes before its children.
func (h *heap[T]) down(index int) {
	sinking := h.items[index]
	for {
		child := 2*index + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].before(h.items[child]) {
			child = right
		}
		if !h.items[child].before(sinking) {
			break
		}
		h.set(index, h.items[child])
		index = child
	}
	h.set(index, sinking)
}

func (h *heap[T]) set(index int, it item[T]) {
	h.items[index] = it
	it.value.moved(index)
}

func (a item[T]) before(b item[T]) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.id < b.id
}
