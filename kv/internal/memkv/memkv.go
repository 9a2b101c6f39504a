// Package memkv is an engine of package kv in memory: an ordered map with snapshots. It is for tests of the kit, and an example for authors of
// engines. Several stores can use the same map, as several processes use the same server.
package memkv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ed332417/jq/kv"
)

// A DB is an ordered map. Any goroutine may use it.
type DB struct {
	mu       sync.Mutex // guards what follows
	root     *node
	version  uint64 // of the latest commit
	ticket   int64  // the latest
	watchers map[*watcher]struct{}
}

// New returns an empty map.
func New() *DB { return &DB{watchers: map[*watcher]struct{}{}} }

// Connect returns an engine on the map, for one store. Closing it leaves the map as it is.
func (db *DB) Connect() kv.Engine { return &engine{db: db} }

// Len returns the number of keys.
func (db *DB) Len() (n int) {
	db.mu.Lock()
	root := db.root
	db.mu.Unlock()
	root.walk(nil, nil, func(*node) bool { n++; return true })
	return n
}

type engine struct{ db *DB }

var _ kv.Watcher = (*engine)(nil)

func (e *engine) Limits() kv.Limits { return kv.Limits{} }

func (e *engine) Close() error { return nil }

func (e *engine) View(ctx context.Context) (kv.View, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.db.mu.Lock()
	defer e.db.mu.Unlock()
	return &view{e.db, e.db.root}, nil
}

func (e *engine) Tickets(ctx context.Context, n int) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.db.mu.Lock()
	defer e.db.mu.Unlock()
	tickets := make([]int64, n)
	for i := range tickets {
		e.db.ticket++
		tickets[i] = e.db.ticket
	}
	return tickets, nil
}

// A view is the root of the tree at its moment: nodes never change.
type view struct {
	db   *DB
	root *node
}

func (v *view) Read(ctx context.Context, ask ...kv.Range) ([][]kv.Item, error) {
	answers := make([][]kv.Item, len(ask))
	for i, r := range ask {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		to := r.To
		if to == nil {
			to = append(bytes.Clone(r.From), 0)
		}
		v.root.walk(r.From, to, func(n *node) bool {
			item := kv.Item{Key: n.key, Version: n.version}
			if !r.KeysOnly {
				item.Value = n.value
			}
			answers[i] = append(answers[i], item)
			return r.Limit == 0 || len(answers[i]) < r.Limit
		})
	}
	return answers, nil
}

func (v *view) Commit(ctx context.Context, c kv.Change) error {
	v.db.mu.Lock()
	defer v.db.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", kv.ErrNothing, err)
	}
	for _, g := range c.Guards {
		if v.db.root.find(g.Key).versionOr0() != g.Version {
			return kv.ErrConflict
		}
	}
	v.db.version++
	for _, k := range c.Deletes {
		v.db.root = v.db.root.without(k)
	}
	for _, p := range c.Puts {
		v.db.root = v.db.root.with(p.Key, p.Value, v.db.version)
	}
	v.db.announce(c.Puts)
	return nil
}

func (v *view) Close() {}

// errMissed ends a watch whose reader is too slow.
var errMissed = errors.New("memkv: the watch was too slow, and missed a commit")

// A watcher has room for keys that it has not heard of yet.
type watcher struct {
	prefixes [][]byte
	keys     chan []byte // closed when there was no room
}

// room is how many keys a watch may be behind.
const room = 10_000

func (e *engine) Watch(ctx context.Context, heard func(key []byte), prefixes ...[]byte) error {
	w := &watcher{prefixes, make(chan []byte, room)}
	e.db.mu.Lock()
	e.db.watchers[w] = struct{}{}
	e.db.mu.Unlock()
	defer func() {
		e.db.mu.Lock()
		defer e.db.mu.Unlock()
		delete(e.db.watchers, w)
	}()
	heard(nil)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case k, open := <-w.keys:
			if !open {
				return errMissed
			}
			heard(k)
		}
	}
}

// announce tells the watchers of a commit. The caller must hold the lock.
func (db *DB) announce(puts []kv.Item) {
	for w := range db.watchers {
		for _, p := range puts {
			if !slices.ContainsFunc(w.prefixes, func(prefix []byte) bool { return bytes.HasPrefix(p.Key, prefix) }) {
				continue
			}
			select {
			case w.keys <- p.Key:
				continue
			default:
			}
			close(w.keys)
			delete(db.watchers, w)
			break
		}
	}
}
