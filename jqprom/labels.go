package jqprom

import "sync"

// other stands for the queues and kinds that came when there were too many already. Each would cost memory for as long as the process
// lives, and whoever may enqueue invents them at will.
const other = "(other)"

// labels are the queues and kinds that have metrics of their own: the first that came.
type labels struct {
	most int

	mu     sync.RWMutex // guards what follows
	queues map[string]bool
	pairs  map[[2]string]bool // of a queue and a kind
}

func newLabels(most int) *labels {
	return &labels{most: most, queues: map[string]bool{}, pairs: map[[2]string]bool{}}
}

// queue is what to call the queue.
func (l *labels) queue(name string) string {
	if admit(l, l.queues, name) {
		return name
	}
	return other
}

// pair is what to call a queue and a kind in it.
func (l *labels) pair(queue, kind string) (string, string) {
	if admit(l, l.pairs, [2]string{queue, kind}) {
		return queue, kind
	}
	return other, other
}

// admit says whether one is among the known, or can become one of them.
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
