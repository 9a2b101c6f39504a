package enginetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/kv"
)

func (c *c) tickets(e kv.Engine, n int) []int64 {
	list, err := e.Tickets(c.ctx, n)
	c.no("Tickets", err)
	if len(list) != n {
		c.fail("Tickets returned %d of %d numbers", len(list), n)
	}
	for i, t := range list {
		if t <= 0 || t >= 1<<60 {
			c.fail("%d is no ticket", t)
		}
		if i > 0 && t <= list[i-1] {
			c.fail("tickets do not rise: %d comes after %d", t, list[i-1])
		}
	}
	return list
}

func ticketsRise(c *c) {
	e := c.open()
	last := int64(0)
	note := func(e kv.Engine, n int, when string) {
		list := c.tickets(e, n)
		if list[0] <= last {
			c.fail("%d was returned %s, after %d", list[0], when, last)
		}
		last = list[n-1]
	}
	for range 3 {
		other := c.another(e)
		for _, n := range []int{1, 1000, 2, 1} {
			note(e, n, "by a later call")
			note(other, n, "by a later call, on another engine if there can be one")
		}
		e = c.reopen()
		note(e, 1, "by an engine that was opened again")
	}
}

func ticketsOnce(c *c) {
	e := c.open()
	other := c.another(e)
	var mu sync.Mutex
	seen := map[int64]bool{}
	c.parallel(atOnce, func(i int) {
		mine := []kv.Engine{e, other}[i%2]
		for n := range perWorker {
			list := c.tickets(mine, 1+n*7)
			mu.Lock()
			for _, t := range list {
				if seen[t] {
					mu.Unlock()
					c.fail("the ticket %d was returned twice", t)
				}
				seen[t] = true
			}
			mu.Unlock()
		}
	})
}

func reopens(c *c) {
	e := c.open()
	c.put(e, "a", "1", "b", "", "c", "3")
	c.commit(e, deleting("c"))
	before := c.now(e, between("a", "z"))
	e = c.reopen()
	if after := c.now(e, between("a", "z")); !same(after, before, true) {
		c.fail("the engine had %v, and after it was opened again %v", before, after)
	}
	c.commit(e, guarding(puts("a", "2"), before[0], kv.Item{Key: []byte("c")}))
	c.conflicts(c.try(e, guarding(puts("a", "3"), before[0])), "was changed since the engine was opened again")
}

func ended(c *c) {
	e := c.open()
	c.put(e, "a", "1")
	late, cancel := context.WithCancel(c.ctx)
	open := c.view(e)
	c.read(open, one("a"))
	cancel()
	soon := func(what string, do func() error) {
		began := time.Now()
		err := do() // none if the method did not have to wait for anything
		if err != nil && !errors.Is(err, context.Canceled) {
			c.fail("%s with a context that has ended: got the error %v", what, err)
		}
		if took := time.Since(began); took > waitsFor {
			c.fail("%s with a context that has ended took %v", what, took)
		}
	}
	value := "1"
	soon("Commit", func() error {
		err := open.Commit(late, puts("a", "x"))
		switch {
		case err == nil:
			value = "x"
		case !errors.Is(err, kv.ErrNothing):
			c.fail("Commit with a context that has ended does not say ErrNothing: %v", err)
		}
		return err
	})
	c.end(open)
	soon("Tickets", func() error { _, err := e.Tickets(late, 1); return err })
	soon("View, or its first Read,", func() error { // View may leave it to the first Read
		v, err := e.View(late)
		if err != nil {
			return err
		}
		defer v.Close()
		_, err = v.Read(late, one("a"))
		return err
	})
	c.is(e, "after calls whose context had ended", "a", value)
}

func watches(c *c) {
	e := c.open()
	watcher, is := e.(kv.Watcher)
	if !is {
		return
	}
	other := c.another(e)
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	heard := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- watcher.Watch(ctx, func(key []byte) {
			if key == nil {
				key = []byte("begun")
			}
			heard <- string(key)
		}, []byte("w1"), []byte("w2"))
	}()
	await := func(want string) {
		for end := time.After(waitsFor); ; {
			select {
			case key := <-heard:
				if key == want {
					return
				}
			case err := <-ended:
				c.fail("Watch returned %v before %q was heard", err, want)
			case <-end:
				c.fail("%q was not heard within %v", want, waitsFor)
			}
		}
	}
	await("begun")
	c.put(e, "w1 here", "1", "elsewhere", "1")
	await("w1 here")
	c.put(other, "w2 there", "1")
	await("w2 there")
	c.put(other, "w1 here", "1")
	await("w1 here")
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			c.fail("Watch returned without an error")
		}
	case <-time.After(waitsFor):
		c.fail("Watch did not return within %v after its context had ended", waitsFor)
	}
}
