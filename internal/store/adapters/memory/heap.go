package memory

// A heap gives the value with the earliest time, then the smallest id. Values learn where they stand, so that they can be
// removed from anywhere.
type heap[T movable] struct {
	items []item[T]
}

type item[T any] struct {
	at, id int64
	value  T
}

// A movable value is told its index whenever that changes, and -1 when it is removed.
type movable interface{ moved(to int) }

// first is the value with the earliest time, if that is not after the given one.
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

// remove takes the value at the index out.
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

// up lets the item at the index rise to its place.
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

// down lets the item at the index sink to its place.
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
