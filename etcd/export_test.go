package etcd

// Connect is New without the check, which sends 25 MiB: the cases of the suite open hundreds of engines.
var Connect = connect

// KeepsAtMost is how many revisions Examine takes for too many.
func (e *Engine) KeepsAtMost(revisions int64) { e.alarm.history = revisions }

// Forget makes the engine read the next ranges without near ends.
func (e *Engine) Forget() {
	e.guesses.mu.Lock()
	defer e.guesses.mu.Unlock()
	e.guesses.seen = nil
}
