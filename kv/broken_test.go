package kv_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/linear"
	"github.com/seed-ed332417/jq/internal/enginetest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/spread"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A fault breaks one promise of an engine. The histories on several stores, or a case of a group of the suite on one, must notice.
type fault struct {
	breaks string
	by     string // the group, histories, or overlap; empty if only the cases of an engine by itself notice
	engine func(db *memkv.DB) *odd
	own    bool // each store has an engine with the fault of its own

	ofAStore bool // only with the keys of a store. The other faults must be noticed by the cases of an engine by itself too
}

const (
	histories = "histories"
	overlap   = "two claims under a limit that commit at once"
)

var faults = map[string]fault{
	"NoGuards": {breaks: "Guards must be checked", by: histories, engine: func(*memkv.DB) *odd {
		return changing(func(c kv.Change) kv.Change { c.Guards = nil; return c })
	}},
	"RowsAreNotGuarded": {breaks: "a guarded key has changed", by: histories, ofAStore: true, engine: func(*memkv.DB) *odd {
		return changing(func(c kv.Change) kv.Change { return without(c, func(g kv.Item) bool { return g.Key[0] == 'j' }) })
	}},
	"WhatAppearsIsNoConflict": {breaks: "also because the key was added", by: histories, engine: func(*memkv.DB) *odd {
		return changing(func(c kv.Change) kv.Change { return without(c, func(g kv.Item) bool { return g.Version == 0 }) })
	}},
	"GuardsOfEarlierViewsAreLeftOut": {breaks: "A guard may come from an earlier view", engine: readAnew},
	"GuardsAreCheckedTooEarly":       {breaks: "at the moment of the commit", by: histories, engine: early},
	"VersionsComeFromValues":         {breaks: "another version, also if the value stays the same", by: overlap, engine: fromValues},
	"ViewsMove":                      {breaks: "all at the moment of the view", by: histories, engine: moving},
	"AppliedIsCalledNothing":         {breaks: "known to have applied nothing", by: histories, engine: func(*memkv.DB) *odd { return answering(20, kv.ErrNothing, true) }},
	"LostIsCalledApplied":            {breaks: "When it returns nil, the change is applied", by: histories, engine: func(*memkv.DB) *odd { return answering(20, nil, false) }},
	"AppliedIsCalledConflict":        {breaks: "nothing is applied after ErrConflict", by: "Claim", engine: func(*memkv.DB) *odd { return answering(3, kv.ErrConflict, true) }},
	"DeletesAreLeftOut":              {breaks: "as a whole", by: "Claim", engine: func(*memkv.DB) *odd { return changing(func(c kv.Change) kv.Change { c.Deletes = nil; return c }) }},
	"ViewsAreStale":                  {breaks: "every commit that returned before", by: "Enqueue", engine: stale},
	"RangesLackTheirLastItem":        {breaks: "the items of each range", by: "Claim", engine: func(*memkv.DB) *odd { return reading(lackLast) }},
	"RangesIgnoreTheirLimit":         {breaks: "at most so many items", by: "Recover", engine: func(*memkv.DB) *odd { return unlimited() }},
	"TicketsAreHandedOutTwice":       {breaks: "that no other call returns", by: "Delete", engine: twice},
	"TicketsStartAnew":               {breaks: "however often the engine is opened", by: "Reopen", engine: anew, own: true},
	"TicketsFallFromCallToCall":      {breaks: "greater than each one that was returned before", by: "Enqueue", engine: falling},
	"ValuesAreCutAtSixtyFourKiB":     {breaks: "the change as a whole", by: "Enqueue", engine: func(*memkv.DB) *odd { return changing(cut) }},
}

func changing(change func(kv.Change) kv.Change) *odd {
	return &odd{commit: func(ctx context.Context, v kv.View, c kv.Change) error { return v.Commit(ctx, change(c)) }}
}

func without(c kv.Change, gone func(kv.Item) bool) kv.Change {
	c.Guards = slices.DeleteFunc(slices.Clone(c.Guards), gone)
	return c
}

func cut(c kv.Change) kv.Change {
	c.Puts = slices.Clone(c.Puts)
	for i := range c.Puts {
		c.Puts[i].Value = c.Puts[i].Value[:min(len(c.Puts[i].Value), 64<<10)]
	}
	return c
}

// early checks guards in a view of their own, and then commits without.
func early(db *memkv.DB) *odd {
	e := db.Connect()
	return &odd{commit: func(ctx context.Context, v kv.View, c kv.Change) error {
		now, err := e.View(ctx)
		if err != nil {
			return err
		}
		for _, g := range c.Guards {
			found, err := now.Read(ctx, kv.Range{From: g.Key})
			if err != nil {
				return err
			}
			if len(found[0]) == 0 && g.Version != 0 || len(found[0]) > 0 && found[0][0].Version != g.Version {
				return kv.ErrConflict
			}
		}
		runtime.Gosched()
		c.Guards = nil
		return v.Commit(ctx, c)
	}}
}

// fromValues gives the same value the same version.
func fromValues(db *memkv.DB) *odd {
	e := db.Connect()
	var mu sync.Mutex // so that this is the only fault
	hash := func(item kv.Item) uint64 {
		h := fnv.New64a()
		_, _ = h.Write(item.Value)
		return h.Sum64()
	}
	read := func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		for i := range ask {
			ask[i].KeysOnly = false
		}
		answers, err := v.Read(ctx, ask...)
		for _, found := range answers {
			for i := range found {
				found[i].Version = hash(found[i])
			}
		}
		return answers, err
	}
	return &odd{read: read, commit: func(ctx context.Context, v kv.View, c kv.Change) error {
		mu.Lock()
		defer mu.Unlock()
		now, err := e.View(ctx)
		if err != nil {
			return err
		}
		for _, g := range c.Guards {
			found, err := now.Read(ctx, kv.Range{From: g.Key})
			if err != nil {
				return err
			}
			if len(found[0]) == 0 && g.Version != 0 || len(found[0]) > 0 && hash(found[0][0]) != g.Version {
				return kv.ErrConflict
			}
		}
		c.Guards = nil
		return v.Commit(ctx, c)
	}}
}

// moving answers each Read with the newest state.
func moving(db *memkv.DB) *odd {
	e := db.Connect()
	return &odd{read: func(ctx context.Context, _ kv.View, ask []kv.Range) ([][]kv.Item, error) {
		runtime.Gosched() // so that others commit between two reads of a view, also on one processor
		now, err := e.View(ctx)
		if err != nil {
			return nil, err
		}
		return now.Read(ctx, ask...)
	}}
}

// answering gives one in so many commits an answer, whether it is applied or not.
func answering(every int, answer error, applied bool) *odd {
	lie := once(every)
	return &odd{commit: func(ctx context.Context, v kv.View, c kv.Change) error {
		if !lie.now() {
			return v.Commit(ctx, c)
		}
		if applied {
			if err := v.Commit(ctx, c); err != nil {
				return err
			}
		}
		return answer
	}}
}

// stale shows every third view as the one before it was.
func stale(db *memkv.DB) *odd {
	e := db.Connect()
	old := once(3)
	var mu sync.Mutex
	var before kv.View
	return &odd{view: func(ctx context.Context) (kv.View, error) {
		now, err := e.View(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if before != nil && old.now() {
			return before, nil
		}
		before = now
		return now, nil
	}}
}

func reading(change func([]kv.Item) []kv.Item) *odd {
	return &odd{read: func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		answers, err := v.Read(ctx, ask...)
		for i := range answers {
			answers[i] = change(answers[i])
		}
		return answers, err
	}}
}

// readAnew leaves out the guards of keys that the view has not read, as an engine does that leaves them to the reads of its transactions.
func readAnew(*memkv.DB) *odd {
	var mu sync.Mutex
	asked := map[kv.View][]kv.Range{}
	return &odd{
		read: func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
			mu.Lock()
			asked[v] = append(asked[v], ask...)
			mu.Unlock()
			return v.Read(ctx, ask...)
		},
		commit: func(ctx context.Context, v kv.View, c kv.Change) error {
			mu.Lock()
			mine := asked[v]
			mu.Unlock()
			return v.Commit(ctx, without(c, func(g kv.Item) bool {
				return !slices.ContainsFunc(mine, func(r kv.Range) bool {
					k := string(g.Key)
					return k == string(r.From) || k > string(r.From) && k < string(r.To)
				})
			}))
		},
	}
}

func lackLast(items []kv.Item) []kv.Item {
	if len(items) < 2 {
		return items
	}
	return items[:len(items)-1]
}

func unlimited() *odd {
	return &odd{read: func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		for i := range ask {
			ask[i].Limit = 0
		}
		return v.Read(ctx, ask...)
	}}
}

// twice answers every other call with the numbers of the call before it, as far as they go.
func twice(db *memkv.DB) *odd {
	e := db.Connect()
	again := once(2)
	var mu sync.Mutex
	var before []int64
	return &odd{tickets: func(ctx context.Context, n int) ([]int64, error) {
		mu.Lock()
		defer mu.Unlock()
		if again.now() && len(before) == n {
			return before, nil
		}
		tickets, err := e.Tickets(ctx, n)
		before = slices.Clone(tickets)
		return tickets, err
	}}
}

// anew counts from 1 in each engine.
func anew(*memkv.DB) *odd {
	own := memkv.New().Connect()
	return &odd{tickets: own.Tickets}
}

func falling(db *memkv.DB) *odd {
	e := db.Connect()
	return &odd{tickets: func(ctx context.Context, n int) ([]int64, error) {
		tickets, err := e.Tickets(ctx, n)
		if err != nil {
			return nil, err
		}
		first := 1<<40 - tickets[n-1]
		for i := range tickets {
			tickets[i] = first + int64(i)
		}
		return tickets, nil
	}}
}

// engines has engines with the fault.
func (f fault) engines() jqtest.EngineAdapter {
	return enginesOf(func() func() kv.Engine {
		db := memkv.New()
		broken := f.engine(db)
		return func() kv.Engine {
			o := *broken // shares what the fault remembers
			if f.own {
				o = *f.engine(db)
			}
			o.Engine = db.Connect()
			commit := o.commit
			o.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
				for range 3 {
					runtime.Gosched() // as an engine elsewhere takes a while, others come in between
				}
				if commit == nil {
					return v.Commit(ctx, c)
				}
				return commit(ctx, v, c)
			}
			return &shared{&o}
		}
	})
}

// stores has several stores on engines with the fault.
func (f fault) stores() jqtest.Adapter {
	return jqtest.Adapter{Exclude: excluded, New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		place, err := f.engines().New(ctx)
		if err != nil {
			return nil, err
		}
		s, err := spread.Open(ctx, 3, clk, func() (kv.Engine, error) { return place.Open(ctx) })
		if err != nil {
			return nil, err
		}
		return &jqtest.Instance{Store: s}, nil
	}}
}

// The kit rests on what an engine promises, so the suite must notice an engine that does not keep it.
func TestBrokenEnginesAreNoticed(t *testing.T) {
	if race.Enabled {
		t.Skip("broken engines are left to the pass without the race detector: what is looked for in them is no race")
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !f.ofAStore {
				assert.NotEmpty(t, f.noticedAlone(t), "no case of an engine by itself notices: %s", f.breaks)
			}
			if f.by == "" {
				return
			}
			if f.by == histories {
				report, err := linear.Check(t.Context(), f.stores(), linear.Options{Histories: 400, PerStore: 4})
				var violation *linear.Violation
				assert.ErrorAs(t, err, &violation, "no history of %d notices: %s", report.Histories, f.breaks)
				t.Logf("%s: noticed by history %d: %s", f.breaks, report.Histories, firstLine(err))
				return
			}
			if f.by == overlap {
				assert.Greater(t, claimedAtOnce(t, f.engine), 1, "%s did not notice: %s", f.by, f.breaks)
				return
			}
			killer := killerOf(t, f)
			assert.NotEmpty(t, killer, "no case of group %s notices: %s", f.by, f.breaks)
			t.Logf("%s: noticed by %s", f.breaks, killer)
		})
	}
}

func firstLine(err error) string {
	if err == nil {
		return ""
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// killerOf returns the first case of the group that fails on an engine with the fault.
func killerOf(t *testing.T, f fault) string {
	t.Helper()
	for _, k := range conformance.Cases() {
		if !strings.HasPrefix(k.Name, f.by+"/") {
			continue
		}
		if r := conformance.Run(t.Context(), jqtest.EngineStores(f.engines()), k); r.Failed {
			return fmt.Sprintf("%s: %s", k.Name, r.Log[0])
		}
	}
	return ""
}

// noticedAlone returns the cases of an engine by itself that fail on one with the fault.
func (f fault) noticedAlone(t *testing.T) (names []string) {
	t.Helper()
	for _, k := range enginetest.Cases() {
		if k.Run(t.Context(), f.engines()) != nil {
			names = append(names, k.Name)
		}
	}
	return names
}
