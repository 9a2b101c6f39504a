package jqprom

import "sync"

// other is the label for queues and kinds that come after the limit is reached. Every label costs memory for the life of the
// process, and anyone who may enqueue can invent names.
const other = "(other)"

// labels decides which queues and kinds have metrics of their own: the first ones seen.
type labels struct {
	most int

	mu     sync.RWMutex // guards queues and pairs
	queues map[string]bool
	pairs  map[[2]string]bool // a queue and a kind
}

func newLabels(most int) *labels {
	return &labels{most: most, queues: map[string]bool{}, pairs: map[[2]string]bool{}}
}

// queue returns the label for the queue.
func (l *labels) queue(name string) string {
	if admit(l, l.queues, name) {
		return name
	}
	return other
}

// pair returns the labels for a queue and a kind in it.
func (l *labels) pair(queue, kind string) (string, string) {
	if admit(l, l.pairs, [2]string{queue, kind}) {
		return queue, kind
	}
	return other, other
}

// admit reports whether one is already in known, or adds it if there is room.
func admit[K comparable](l *labels, known map[K]bool, one K) bool {
	l.mu.RLock()
	there, full := known[one], len(known) >= l.most
	l.mu.RUnlock()
	if there || full {
		return there
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(known) < l.most {
		known[one] = true
	}
	return known[one]
}
