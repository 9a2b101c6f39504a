package kv

import (
	"context"
	"errors"
	"time"
)

// An Engine is an ordered map of byte strings with snapshots and guarded commits. Keys are ordered byte by byte. Any goroutine
// may call any method at any time.
//
// An engine can have more abilities: [Watcher], [Sharer], views that are a [Timer], and contract.Examiner, whose findings jobq doctor shows.
//
// An engine belongs to one store, or to several that share their jobs, in one process or in many. Keep the keys of an engine on a
// shared server under a prefix of its own: a store uses keys of its own choice, of at most 600 bytes.
//
// If the context of a method ends, the method must return soon. Its error must match that of the context.
type Engine interface {
	// View returns the map at one moment: with every commit that returned before View was called, in whatever
	// process. The moment may also be that of the first Read. A view that was returned is closed once.
	//
	// A view must not have a change that a crash can still undo. If the engine shows a commit before it is on the disk, View must wait until it is.
	// Otherwise a caller could be told of a job that is lost then.
	View(ctx context.Context) (View, error)

	// Tickets returns n positive numbers in rising order that no other call returns, in whatever process and however often
	// the engine is opened. All of them are greater than each one that was returned before Tickets was called. They need not be consecutive. They become
	// ids of jobs, and must be less than 2⁶⁰. A goroutine that calls Tickets has no view open.
	Tickets(ctx context.Context, n int) ([]int64, error)

	// Limits returns what one commit can hold. Open refuses an engine that has too little.
	Limits() Limits

	// Close releases what the engine holds. The store has closed all views before, and calls nothing afterwards.
	Close() error
}

// A View is the map at one moment. One goroutine uses it.
//
// A view may end by itself, such as when its moment is compacted or after some seconds. Then its methods must return an error that matches
// [ErrConflict], and never an incomplete answer. The store starts the call again with a new view: a List starts its page again.
type View interface {
	// Read returns the items of each range, in order, all at the moment of the view. A store asks everything that it can ask at once in
	// one Read, up to 4,000 ranges. For a single key that does not exist, the answer is empty. The store does not change the items.
	Read(ctx context.Context, ask ...Range) ([][]Item, error)

	// Commit applies the change as a whole or not at all. It is called at most once, as the last call before Close. When it returns nil, the change
	// is as durable as the engine promises, and every later view has it.
	//
	// If the version of a guarded key is no longer that of its guard, also because the key was added or removed, Commit must return an error that
	// matches ErrConflict, and apply nothing. Guards must be checked at the moment of the commit: of two
	// commits that each write a key that the other one guards, at most one succeeds. What was read without a guard is not checked.
	// A guard may come from an earlier view, and its key need not have been read in this one.
	// Two commits that guard a key which neither writes must not make each other fail: every change has a guard on the same key.
	//
	// Any other error that is known to have applied nothing must match [ErrNothing], also if the context has ended before the change was given to the engine. After every other error, the change is in doubt: it was
	// applied, may still be applied, or was not. So use ErrNothing only if you know that the engine will not apply the
	// change any more. If the answer to a commit is lost, the change is in doubt.
	Commit(ctx context.Context, c Change) error

	// Close releases the view.
	Close()
}

// A Range selects keys from From, without To. If To is nil, it selects the key From alone.
type Range struct {
	From     []byte // the first key
	To       []byte // the key behind the last one, or nil
	Limit    int    // at most so many items, the first ones; zero means all
	KeysOnly bool   // the values are not needed, only keys and versions
}

// An Item is a key with its value. A version belongs to one value of one key: each commit that writes the key gives it another version, also if the value stays
// the same, the key was removed in between, or the engine was opened again. Version 0 means that there is no such key.
type Item struct {
	Key     []byte // not empty
	Value   []byte // may be empty
	Version uint64 // given by the engine
}

// A Change is what a commit applies. No key stands twice in Puts and Deletes. To delete a key that does not exist is no error. A value may be
// empty.
//
// A call on 1,000 jobs changes up to 11,010 keys, guards 3,010, and writes up to 24 MiB. One with 4,000 waits changes up to 25,000 keys and guards 15,000. A claim that
// finds jobs by their limit keys has up to 45,000 of both. The keys that have a guard, a put or a delete overlap.
type Change struct {
	Guards  []Item   // by Key and Version
	Puts    []Item   // by Key and Value
	Deletes [][]byte // keys
}

// Limits are what an engine can hold. Zero means any number.
type Limits struct {
	Keys  int // guards, puts and deletes of a commit together
	Bytes int // keys and values of a commit together
	Value int // bytes of a value
}

// The least limits that Open accepts. An engine whose values are shorter must cut them into several.
const (
	MinKeys  = 50_000   // of Limits.Keys
	MinBytes = 24 << 20 // of Limits.Bytes
	MinValue = 2 << 20  // of Limits.Value
)

// Errors of an engine, by errors.Is.
var (
	// ErrConflict says that a guarded key was changed since the view, or that the view has ended. Nothing was applied.
	ErrConflict = errors.New("kv: changed since the view")
	// ErrNothing says that a commit failed and has applied nothing, and will not.
	ErrNothing = errors.New("kv: nothing was applied")
)

// A Watcher is an engine that tells of the commits of others. Without it, a store wakes only listeners in its own process.
type Watcher interface {
	// Watch calls heard with each key with one of the prefixes that a commit puts, in whatever process, soon after the commit. It calls heard
	// with nil once it has begun to watch. It calls heard by one goroutine at a time, and may call it more often than needed.
	//
	// Watch returns when the context ends, or when it may have missed a commit, with an error. Then the store calls Watch again, and once that has
	// begun, it tells all its listeners to look.
	Watch(ctx context.Context, heard func(key []byte), prefixes ...[]byte) error
}

// A Sharer is an engine that several processes may use at the same time, though it does not tell of commits. A [Watcher] needs not be one too.
type Sharer interface {
	// Shared does nothing. An engine that has it is one.
	Shared()
}

// A Timer is a [View] of an engine that has a clock. All stores of the engine then have its time. Without it, the stores of a [Watcher] or [Sharer] agree on a time among themselves.
type Timer interface {
	// Now returns the time at the moment of the view, also before the first Read. A view of a later moment, in whatever process, returns no earlier time.
	Now() time.Time
}

// shared reports whether several processes may use the engine at the same time.
func shared(e Engine) bool {
	_, watches := e.(Watcher)
	_, shares := e.(Sharer)
	return watches || shares
}
