// Package enginetest has cases for an engine of package kv, without a store. Each case quotes the sentence of kv that it checks.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/kv"
)

// An Adapter is a kind of engine, as the cases see it.
type Adapter struct {
	// New makes a place for keys, which has none.
	New func(ctx context.Context) (*Place, error)
}

// A Place is where one engine keeps its keys.
type Place struct {
	// Open opens an engine on the keys. It is called again when the engine before was closed, and of a kv.Watcher or kv.Sharer also while others are open.
	Open func(ctx context.Context) (kv.Engine, error)

	// Remove takes the keys away when all engines are closed; it may be nil.
	Remove func() error
}

// A Case checks a sentence about engines.
type Case struct {
	Name     string
	Sentence string // word by word as it stands in package kv; several stand on a line each
	run      func(c *c)
}

// Patience bounds a case in real time, and what a case waits for.
const (
	Patience  = time.Minute
	waitsFor  = 10 * time.Second
	mayWait   = 300 * time.Millisecond // for what an engine may hold up
	atOnce    = 8                      // goroutines
	perWorker = 25                     // calls of each of them
)

// Run runs the case in a place of its own, and returns what is wrong.
func (k Case) Run(ctx context.Context, a Adapter) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- k.judge(ctx, a) }()
	select {
	case err := <-done:
		return err
	case <-time.After(Patience + waitsFor):
		return fmt.Errorf("the case did not end within %v: a method of the engine does not return", Patience+waitsFor)
	}
}

func (k Case) judge(ctx context.Context, a Adapter) error {
	place, err := a.New(ctx)
	if err != nil {
		return fmt.Errorf("New: %w", err)
	}
	one := &c{ctx: ctx, place: place}
	err = one.guarded(func() { k.run(one) })
	one.closeAll()
	err = errors.Join(err, one.closing)
	if place.Remove != nil {
		if failed := place.Remove(); failed != nil {
			err = errors.Join(err, fmt.Errorf("Remove: %w", failed))
		}
	}
	return err
}

// A c is one run of a case.
type c struct {
	ctx     context.Context
	place   *Place
	engines []kv.Engine
	closing error

	mu    sync.Mutex // guards views
	views []kv.View
}

// A finding ends a case. It says what is wrong.
type finding struct{ error }

// guarded runs part of a case, and returns its finding.
func (c *c) guarded(part func()) (err error) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case finding:
			err = found.error
		default:
			panic(found)
		}
	}()
	part()
	return nil
}

func (c *c) fail(format string, args ...any) { panic(finding{fmt.Errorf(format, args...)}) }

// no fails if there is an error.
func (c *c) no(what string, err error) {
	if err != nil {
		c.fail("%s: %w", what, err)
	}
}

func (c *c) open() kv.Engine {
	e, err := c.place.Open(c.ctx)
	c.no("Open", err)
	c.engines = append(c.engines, e)
	return e
}

// another returns a second engine on the same keys, or the first one if only one may be open.
func (c *c) another(first kv.Engine) kv.Engine {
	_, watches := first.(kv.Watcher)
	if _, shares := first.(kv.Sharer); watches || shares {
		return c.open()
	}
	return first
}

// closeAll closes views and engines.
func (c *c) closeAll() {
	c.mu.Lock()
	open := c.views
	c.views = nil
	c.mu.Unlock()
	for _, v := range open {
		v.Close()
	}
	for _, e := range c.engines {
		if err := e.Close(); err != nil {
			c.closing = errors.Join(c.closing, fmt.Errorf("Close: %w", err))
		}
	}
	c.engines = nil
}

func (c *c) reopen() kv.Engine {
	c.closeAll()
	return c.open()
}

// view opens a view, which is closed by end, or when the case ends.
func (c *c) view(e kv.Engine) kv.View {
	v, err := e.View(c.ctx)
	c.no("View", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.views = append(c.views, v)
	return v
}

func (c *c) end(v kv.View) {
	c.mu.Lock()
	at := slices.Index(c.views, v)
	if at >= 0 {
		c.views = slices.Delete(c.views, at, at+1)
	}
	c.mu.Unlock()
	if at >= 0 {
		v.Close() // which may wait
	}
}

// read reads in a view.
func (c *c) read(v kv.View, ask ...kv.Range) [][]kv.Item {
	answers, err := v.Read(c.ctx, ask...)
	c.no("Read", err)
	if len(answers) != len(ask) {
		c.fail("Read answered %d of %d ranges", len(answers), len(ask))
	}
	return answers
}

// now reads a range in a view of its own.
func (c *c) now(e kv.Engine, r kv.Range) []kv.Item {
	v := c.view(e)
	defer c.end(v)
	return c.read(v, r)[0]
}

// get returns the item of a key, whose version is zero if there is none.
func (c *c) get(e kv.Engine, key string) kv.Item {
	found := c.now(e, one(key))
	switch {
	case len(found) == 0:
		return kv.Item{Key: []byte(key)}
	case len(found) > 1 || string(found[0].Key) != key:
		c.fail("the range of the key %q alone has %s", key, show(found))
	case found[0].Version == 0:
		c.fail("the key %q exists and has the version 0", key)
	}
	return found[0]
}

// try commits a change in a view of its own.
func (c *c) try(e kv.Engine, change kv.Change) error {
	v := c.view(e)
	defer c.end(v)
	for _, g := range change.Guards { // as a store does mostly
		c.read(v, kv.Range{From: g.Key})
	}
	return v.Commit(c.ctx, change)
}

func (c *c) commit(e kv.Engine, change kv.Change) { c.no("Commit", c.try(e, change)) }

// put commits values, each after its key.
func (c *c) put(e kv.Engine, pairs ...string) { c.commit(e, puts(pairs...)) }

// is fails unless the values of the keys, each after its key, are these. "-" means that there is no such key.
func (c *c) is(e kv.Engine, when string, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		value := "-"
		if item := c.get(e, pairs[i]); item.Version != 0 {
			value = string(item.Value)
		}
		if value != pairs[i+1] {
			c.fail("%s, the value of %q is %q, not %q", when, pairs[i], value, pairs[i+1])
		}
	}
}

// conflicts fails unless the error is one of a guard.
func (c *c) conflicts(err error, what string) {
	if !errors.Is(err, kv.ErrConflict) {
		c.fail("a commit with a guard on a key that %s: got the error %v, not ErrConflict", what, err)
	}
}

// parallel runs a function several times at once, and fails with the first finding.
func (c *c) parallel(n int, do func(i int)) {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = c.guarded(func() { do(i) }) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			panic(finding{err})
		}
	}
}

// behind starts a part of a case, gives it a while to end, and returns what waits for it. An engine may make a commit wait until a view is closed.
func (c *c) behind(part func()) (wait func()) {
	done := make(chan error, 1)
	go func() { done <- c.guarded(part) }()
	judge := func(err error) {
		if err != nil {
			panic(finding{err})
		}
	}
	select {
	case err := <-done:
		judge(err)
		return func() {}
	case <-time.After(mayWait):
	}
	return func() {
		select {
		case err := <-done:
			judge(err)
		case <-time.After(waitsFor):
			c.fail("a commit did not return within %v after all views were closed", waitsFor)
		}
	}
}

func one(key string) kv.Range { return kv.Range{From: []byte(key)} }

// between returns a range of keys.
func between(from, to string) kv.Range { return kv.Range{From: []byte(from), To: []byte(to)} }

func puts(pairs ...string) (change kv.Change) {
	for i := 0; i < len(pairs); i += 2 {
		change.Puts = append(change.Puts, kv.Item{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	return change
}

// guarding adds guards to a change.
func guarding(change kv.Change, items ...kv.Item) kv.Change {
	for _, item := range items {
		change.Guards = append(change.Guards, kv.Item{Key: item.Key, Version: item.Version})
	}
	return change
}

func deleting(keys ...string) (change kv.Change) {
	for _, k := range keys {
		change.Deletes = append(change.Deletes, []byte(k))
	}
	return change
}

// show names items, cut short.
func show(items []kv.Item) string {
	var b bytes.Buffer
	for i, item := range items {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(items)-i)
			break
		}
		fmt.Fprintf(&b, " %q=%.40q", item.Key, item.Value)
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()[1:]
}

// same reports whether both have the same keys and versions and, unless only keys were asked for, values.
func same(a, b []kv.Item, values bool) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].Key, b[i].Key) || a[i].Version != b[i].Version || values && !bytes.Equal(a[i].Value, b[i].Value) {
			return false
		}
	}
	return true
}
