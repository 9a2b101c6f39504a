//go:build unix

package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/kv"
)

// pass waits for some time in which a test expects nothing.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// Programs whose packets to some members get lost are served by the others, and by nobody if there are no others. Nothing that was answered is lost.
func TestProgramsAreCutOff(t *testing.T) {
	c := start(t, etcdtest.Options{NoSync: true})
	all, endpoints := proxies(t, c)
	l := begin(t, c, endpoints...)
	for i := range times(t) {
		for _, cut := range []string{"both followers", "the leader", "all members"} { // after the first, all programs ask the leader
			l.serves()
			leader, err := c.Leader(t.Context())
			require.NoError(t, err)
			from := []int{leader}
			switch cut {
			case "both followers":
				from = others(c, leader)
			case "all members":
				from = []int{0, 1, 2}
			}
			l.without()
			for _, m := range from {
				all[m].swallow(true, true)
			}
			figures.Count(t, "cuts", 1)
			if len(from) == c.Len() {
				after := l.count()
				pass(t, 2*time.Second)
				assert.LessOrEqual(t, l.count(), after+producers+workers, "calls answered by nobody")
			} else {
				served := l.eachServes()
				assert.Less(t, served, longestOutage, cut)
				l.serves()
				figures.Print(t, "cut %d from %s: each program was served within %v", i+1, cut, served)
			}
			for _, m := range from {
				all[m].mend()
			}
		}
	}
	l.serves()
	l.finish("programs cut off")
}

// A hooked engine calls a function before each commit.
type hooked struct {
	kv.Engine
	before func()
}

func (h hooked) View(ctx context.Context) (kv.View, error) {
	v, err := h.Engine.View(ctx)
	return hookedView{v, h.before}, err
}

type hookedView struct {
	kv.View
	before func()
}

func (v hookedView) Commit(ctx context.Context, c kv.Change) error {
	v.before()
	return v.View.Commit(ctx, c)
}

// If the answer to a commit gets lost, the call is in doubt and has taken effect. If the commit itself gets lost, the call is in doubt too, and has not taken effect,
// also later.
func TestLostCommits(t *testing.T) {
	c := start(t, etcdtest.Options{Members: 1, NoSync: true})
	all, endpoints := proxies(t, c)
	direct := storeAt(t, c.Endpoints()...)
	e, err := etcd.New(t.Context(), clientv3.Config{Endpoints: endpoints}, "jobs")
	require.NoError(t, err)
	before := func() {}
	s, err := kv.Open(t.Context(), hooked{e, func() { before() }}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	enqueue := func(queue string) error {
		_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: queue, Kind: "k", Payload: []byte(`1`)}}})
		return err
	}
	jobs := func(queue string) int {
		counts, err := direct.Count(t.Context(), contract.Filter{Queue: queue})
		require.NoError(t, err)
		if len(counts.Queues) == 0 {
			return 0
		}
		return int(counts.Queues[0].Jobs[contract.Ready])
	}
	require.NoError(t, enqueue("first"))
	for range times(t) {
		for _, k := range []struct {
			queue             string
			requests, answers bool
			kept              int
		}{
			{"answer lost", false, true, 1},
			{"commit lost", true, false, 0},
		} {
			was := jobs(k.queue)
			before = func() { all[0].swallow(k.requests, k.answers) }
			err := enqueue(k.queue)
			before = func() {}
			require.ErrorIs(t, err, contract.ErrInDoubt, k.queue)
			figures.Count(t, "commits lost", 1)
			assert.Equal(t, was+k.kept, jobs(k.queue), k.queue)
			all[0].mend()
			require.NoError(t, enqueue("after"), k.queue)
			assert.Equal(t, was+k.kept, jobs(k.queue), k.queue)
		}
	}
}

// A member whose data are lost is replaced by an empty one under load, which then serves like the others.
func TestMemberIsReplaced(t *testing.T) {
	c := start(t, etcdtest.Options{NoSync: true})
	l := begin(t, c)
	l.serves()
	leader, err := c.Leader(t.Context())
	require.NoError(t, err)
	old := others(c, leader)[0]
	l.without()
	require.NoError(t, c.Kill(old))
	figures.Count(t, "kills", 2) // with the one below
	require.NoError(t, c.Replace(t.Context(), old))
	require.NoError(t, c.Ready(t.Context()))
	l.serves()
	figures.Print(t, "a member replaced: %v without service", l.outage())
	assert.Less(t, l.outage(), longestOutage)
	require.NoError(t, c.Kill(others(c, leader)[1])) // so that the new one is needed
	l.serves()
	l.finish("a member replaced")
	assert.Equal(t, []string{"silent_member", "no_spare_member"}, findings(t, storeAt(t, c.Endpoints()...)))
}
