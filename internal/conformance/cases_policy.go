package conformance

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var policyCases = []Case{
	{"Policy/IsOfItsQueue", "Policy returns the policy of the queue.\nIf no policy was ever set, the returned policy sets nothing and has version 0.", policyIsOfItsQueue},
	{"Policy/SetAsAWhole", "SetPolicy replaces the queue's policy as a whole with p, and returns it with the next version.", policySetAsAWhole},
	{"Policy/OneOfManyAtOnceIsSet", "A call takes effect as a whole, at one moment between its start and its return, or not at all.", policyOneOfManyAtOnceIsSet},
	{"Policy/OutlivesItsJobs", "A policy can be set before its queue has a job, and it stays when the queue's last job is gone.\nVersions never restart, even if a policy no longer sets anything.", policyOutlivesItsJobs},
	{"Policy/FenceLeavesIt", sentenceFenceOnly, policyFenceLeavesIt},
	{"Policy/RepeatIsSafe", "The version of p must be the version of the policy to replace, or 0 if none was ever set. If the queue's policy has another version, SetPolicy returns ErrConflict and changes nothing.\nIt is safe to repeat a SetPolicy: the repeat returns the same answer and changes nothing, or returns ErrConflict if others have set the policy since.\nThe store must truncate every incoming time and duration to that resolution", policyRepeatIsSafe},
	{"Policy/ListedWithItsQueue", "Each queue comes with its policy.", policyListedWithItsQueue},
	{"Policy/ChangesNoJob", "It changes no jobs: servers read from the policies how long to keep finished jobs, and delete those that are older.", policyChangesNoJob},
	{"Policy/KeepsWhoDeclaredIt", "Owner and Declared are kept for programs that declare policies, and change nothing in the store.\nQueues returns every queue that has a job, is paused, or has a policy that sets something, in bytewise order of name.", policyKeepsWhoDeclaredIt},
	{"Policy/RetentionsHaveLimits", "A retention is an hour to ten years, or for ever.", policyRetentionsHaveLimits},
	{"Policy/RefusesAsTheCoreDoes", sentenceAbility, policyRefusesAsTheCoreDoes},
}

func (c *C) policyKeeper() store.PolicyKeeper { return ability[store.PolicyKeeper](c) }

func (c *C) policy(name string) store.Policy {
	p, err := c.policyKeeper().Policy(c.Ctx, name)
	c.OK(err, "Policy %q", name)
	return p
}

// setPolicy sets a policy that can be set, and finds that it stands there.
func (c *C) setPolicy(name string, p store.Policy) store.Policy {
	want := p
	want.Version++
	c.answersPolicy(name, p, want)
	return want
}

// answersPolicy finds that SetPolicy answers as wanted, and that what it answers stands there.
func (c *C) answersPolicy(name string, p, want store.Policy) {
	got, err := c.policyKeeper().SetPolicy(c.Ctx, name, p)
	c.OK(err, "SetPolicy %q %+v", name, p)
	c.Equal(got, want, "the answer to SetPolicy %q %+v", name, p)
	c.Equal(c.policy(name), want, "the policy of %q after SetPolicy %+v", name, p)
}

// refusesPolicy finds that a policy is refused, and that the one that stands there stays.
func (c *C) refusesPolicy(p store.Policy, want error) {
	before := c.policy(queue)
	_, err := c.policyKeeper().SetPolicy(c.Ctx, queue, p)
	c.ErrorIs(err, want, "SetPolicy %q %+v", queue, p)
	c.Equal(c.policy(queue), before, "the policy of %q after %+v was refused", queue, p)
}

// aPolicy sets everything that a policy can set.
func (c *C) aPolicy() store.Policy {
	p := store.Policy{
		RetainSucceeded: time.Hour, RetainCancelled: store.MaxDuration, RetainDead: 36*time.Hour + store.Resolution, MaxInFlight: 7, MaxPerKey: 3, Fair: true, Ordered: true,
		Rate: store.Rate{N: 900, Per: 90*time.Second + store.Resolution}, Owner: "billing", Declared: 12,
	}
	if c.noKeyLimits {
		p.MaxPerKey, p.Fair, p.Ordered = 0, false, false
	}
	return p
}

// policyIsOfItsQueue has queues with a policy, queues with a job or a pause and no policy, and queues that are not there.
func policyIsOfItsQueue(c *C) {
	want := map[string]store.Policy{}
	for i, name := range trickyNames {
		switch i % 4 {
		case 0, 1:
			want[name] = c.setPolicy(name, store.Policy{RetainSucceeded: time.Duration(i+1) * time.Hour})
		case 2:
			c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = name }))
			c.setPaused(name, i%8 == 2)
		}
	}
	for _, name := range trickyNames {
		c.Equal(c.policy(name), want[name], "the policy of %q", name)
	}
}

func policySetAsAWhole(c *C) {
	version := int64(0)
	keep := store.Policy{RetainSucceeded: store.KeepForEver, RetainCancelled: store.KeepForEver, RetainDead: store.KeepForEver}
	for _, p := range []store.Policy{c.aPolicy(), {RetainCancelled: 2 * time.Hour}, keep, {RetainDead: time.Hour}, {}, c.aPolicy()} {
		p.Version = version
		version = c.setPolicy(queue, p).Version
	}
	c.Equal(version, int64(6), "the version after six changes")
}

// Whoever is told that the policy was set must find it there, and nobody else may have been told so.
func policyOneOfManyAtOnceIsSet(c *C) {
	keeper := c.policyKeeper()
	for version := range int64(20) {
		var set atomic.Int64
		var told atomic.Pointer[store.Policy]
		c.Parallel(4, func(i int) {
			got, err := keeper.SetPolicy(c.Ctx, queue, store.Policy{RetainDead: time.Duration(i+1) * time.Hour, Version: version})
			switch {
			case err == nil:
				set.Add(1)
				told.Store(&got)
			case !errors.Is(err, store.ErrConflict):
				c.Errorf("SetPolicy: %v", err)
			}
		})
		if set.Load() != 1 {
			c.Fatalf("%d callers of 4 were told that they had replaced version %d, want 1", set.Load(), version)
		}
		c.Equal(c.policy(queue), *told.Load(), "the policy that stands after version %d", version)
	}
}

// policyOutlivesItsJobs has a policy that sets something, one that sets nothing any more, and one that sets something again.
func policyOutlivesItsJobs(c *C) {
	outlives := func(p store.Policy) {
		for range 2 {
			c.Delete(c.JobIn(store.Dead).ID)
			c.setPaused(queue, true)
			c.setPaused(queue, false)
			c.Equal(c.policy(queue), p, "the policy when the last job is gone, and a pause is over")
		}
	}
	p := c.setPolicy(queue, c.aPolicy())
	c.Equal(c.queues(), []store.Queue{{Name: queue, Policy: p}}, "queues, with a policy and no job")
	outlives(p)
	p = c.setPolicy(queue, store.Policy{Version: p.Version})
	c.Equal(c.queues(), []store.Queue{}, "queues, with a policy that sets nothing any more")
	outlives(p)
	c.refusesPolicy(c.aPolicy(), store.ErrConflict)
	outlives(c.setPolicy(queue, store.Policy{RetainDead: time.Hour, Version: p.Version}))
}

func policyFenceLeavesIt(c *C) {
	p := c.setPolicy(queue, c.aPolicy())
	c.fence(store.FenceRequest{})
	c.fence(store.FenceRequest{EndLeases: true})
	c.Equal(c.policy(queue), p, "the policy after two Fences")
}

func policyRepeatIsSafe(c *C) {
	fine := store.Policy{RetainSucceeded: time.Hour + 999, RetainCancelled: 2*time.Hour + 1999, RetainDead: 3*time.Hour + 1, Rate: store.Rate{N: 1, Per: time.Minute + 1999}}
	first := store.Policy{RetainSucceeded: time.Hour, RetainCancelled: 2*time.Hour + store.Resolution, RetainDead: 3 * time.Hour, Rate: aMinute(1), Version: 1}
	first.Rate.Per += store.Resolution
	c.refusesPolicy(store.Policy{RetainDead: time.Hour, Version: 1}, store.ErrConflict) // for none was ever set
	for range 3 {
		c.answersPolicy(queue, fine, first)
	}
	request := store.Policy{RetainDead: store.KeepForEver, Version: first.Version}
	second := c.setPolicy(queue, request)
	c.answersPolicy(queue, request, second)
	for _, version := range []int64{0, 1, 3, 1 << 40} {
		other := c.aPolicy()
		other.Version = version
		c.refusesPolicy(other, store.ErrConflict)
	}
	third := c.setPolicy(queue, store.Policy{RetainDead: time.Hour, Version: second.Version})
	c.refusesPolicy(request, store.ErrConflict)
	c.setPolicy(queue, store.Policy{RetainDead: store.KeepForEver, Version: third.Version})
	c.refusesPolicy(request, store.ErrConflict)
}

func policyListedWithItsQueue(c *C) {
	set := c.setPolicy("a", store.Policy{RetainSucceeded: store.KeepForEver})
	c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = "b" }))
	both := c.setPolicy("c", c.aPolicy())
	c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = "c" }))
	c.setPaused("c", true)
	c.setPaused("d", true)
	unset := c.setPolicy("d", store.Policy{Version: c.setPolicy("d", c.aPolicy()).Version})
	c.setPolicy("e", store.Policy{})
	c.Equal(c.queues(), []store.Queue{
		{Name: "a", Policy: set}, {Name: "b"}, {Name: "c", Paused: true, Policy: both}, {Name: "d", Paused: true, Policy: unset},
	}, "queues")
	for _, one := range []store.Policy{{RetainSucceeded: time.Hour}, {RetainCancelled: time.Hour}, {RetainDead: time.Hour}, {MaxInFlight: 1}, {Rate: aMinute(1)}} {
		one.Version = c.policy("f").Version
		p := c.setPolicy("f", one)
		list := c.queues()
		c.Equal(list[len(list)-1], store.Queue{Name: "f", Policy: p}, "the queue that has only a policy")
	}
}

// What a policy lets go stays until somebody deletes it, and everything else goes on as if there were none.
func policyChangesNoJob(c *C) {
	for _, phase := range terminalPhases {
		c.JobIn(phase)
	}
	c.Advance(365 * 24 * time.Hour)
	c.changesNothing("a policy that lets every finished job go", func() {
		c.setPolicy(queue, store.Policy{RetainSucceeded: time.Hour, RetainCancelled: time.Hour, RetainDead: time.Hour})
		c.policy(queue)
		c.queues()
	})
	id := c.EnqueueOne()
	held := c.Claim(10)
	c.Equal(ids(held), []int64{id}, "claimed from a queue with a policy")
	c.Equal(c.Ack(held[0].Lease()).Status, store.StatusOK, "Ack in a queue with a policy")
	c.Equal(len(c.All()), len(terminalPhases)+1, "jobs at last")
}

func policyKeepsWhoDeclaredIt(c *C) {
	c.setPolicy(queue, store.Policy{Owner: "billing", Declared: 3})
	c.Equal(c.queues(), []store.Queue{}, "queues, with a policy that says only who has declared it")
	for i, next := range []store.Policy{{Owner: "billing", Declared: 2}, {Owner: "mail", Declared: 1}, {}, {Declared: 1 << 60}, {Owner: strings.Repeat("x", store.MaxNameBytes)}} {
		next.MaxInFlight, next.Version = i, c.policy(queue).Version
		c.setPolicy(queue, next)
	}
	c.refusesPolicy(store.Policy{Owner: strings.Repeat("x", store.MaxNameBytes+1)}, store.ErrInvalid)
	c.refusesPolicy(store.Policy{Owner: "a\x00"}, store.ErrInvalid)
	c.refusesPolicy(store.Policy{Declared: -1}, store.ErrInvalid)
}

func policyRetentionsHaveLimits(c *C) {
	fields := map[string]func(p *store.Policy) *time.Duration{
		"retain_succeeded": func(p *store.Policy) *time.Duration { return &p.RetainSucceeded },
		"retain_cancelled": func(p *store.Policy) *time.Duration { return &p.RetainCancelled },
		"retain_dead":      func(p *store.Policy) *time.Duration { return &p.RetainDead },
	}
	for name, field := range fields {
		for _, d := range []time.Duration{1, time.Hour - 1, store.MaxDuration + 1, -1, store.KeepForEver + 1, store.KeepForEver - 1, -time.Hour} {
			var p store.Policy
			*field(&p) = d
			c.refusesPolicy(p, store.ErrInvalid)
			_, err := c.policyKeeper().SetPolicy(c.Ctx, queue, p)
			invalid, ok := errors.AsType[*store.InvalidError](err)
			c.True(ok && invalid.Field == name && invalid.Item < 0, "a %s of %v is refused by its name: got %v", name, d, err)
		}
		for _, d := range []time.Duration{time.Hour, store.MaxDuration, store.KeepForEver, 0} {
			p := store.Policy{Version: c.policy(queue).Version}
			*field(&p) = d
			c.setPolicy(queue, p)
		}
	}
	c.refusesPolicy(store.Policy{Version: -1}, store.ErrInvalid)
}

func policyRefusesAsTheCoreDoes(c *C) {
	keeper := c.policyKeeper()
	longest := strings.Repeat("x", store.MaxNameBytes)
	want := []store.Queue{{Name: longest, Policy: c.setPolicy(longest, c.aPolicy())}}
	c.refusesAsTheCoreDoes(abilityCalls{
		"Policy": func(ctx context.Context, name string) error { _, err := keeper.Policy(ctx, name); return err },
		"SetPolicy": func(ctx context.Context, name string) error {
			_, err := keeper.SetPolicy(ctx, name, c.aPolicy())
			return err
		},
	}, func() { c.Equal(c.queues(), want, "queues after the refusals") })
}
