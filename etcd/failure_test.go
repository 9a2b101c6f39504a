//go:build unix

package etcd_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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

const (
	// longestOutage bounds the time without service while the members elect another leader.
	longestOutage = 5 * time.Second
	// calls is how many are answered before and after each failure.
	calls = 100
)

// times returns how often a test repeats its failure: JQ_ETCD_TIMES, or once.
func times(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("JQ_ETCD_TIMES"), "1"))
	require.NoError(t, err, "JQ_ETCD_TIMES")
	return n
}

// others returns the members but one.
func others(c *etcdtest.Cluster, than int) (list []int) {
	for i := range c.Len() {
		if i != than {
			list = append(list, i)
		}
	}
	return list
}

func TestLeaderIsKilled(t *testing.T) {
	leaderFails(t, "kill",
		func(c *etcdtest.Cluster, leader int) error { return c.Kill(leader) },
		func(c *etcdtest.Cluster, leader int) error { return c.Revive(leader) })
}

// A leader that stops is replaced. When it goes on, it does no harm.
func TestLeaderIsStopped(t *testing.T) {
	leaderFails(t, "stop", (*etcdtest.Cluster).Pause, (*etcdtest.Cluster).Resume)
}

// leaderFails lets leaders fail and come back, and looks whether others take over in time.
func leaderFails(t *testing.T, how string, fail, mend func(c *etcdtest.Cluster, leader int) error) {
	t.Helper()
	c := start(t, etcdtest.Options{NoSync: true}) // signals lose nothing that the system has
	l := begin(t, c)
	for i := range times(t) {
		l.serves()
		leader, err := c.Leader(t.Context())
		require.NoError(t, err)
		l.without()
		require.NoError(t, fail(c, leader))
		figures.Count(t, how+"s", 1)
		_, err = c.Leader(t.Context(), others(c, leader)...)
		require.NoError(t, err)
		elected := l.since()
		l.serves()
		figures.Print(t, "%s %d of the leader: %v without service, another leader after %v", how, i+1, l.outage(), elected)
		assert.Less(t, l.outage(), longestOutage)
		require.NoError(t, mend(c, leader))
		require.NoError(t, c.Ready(t.Context()))
	}
	l.serves()
	l.finish("leader, " + how)
}

func TestFollowerIsKilled(t *testing.T) {
	c := start(t, etcdtest.Options{NoSync: true})
	l := begin(t, c)
	for i := range times(t) {
		l.serves()
		leader, err := c.Leader(t.Context())
		require.NoError(t, err)
		follower := others(c, leader)[0]
		l.without()
		require.NoError(t, c.Kill(follower))
		figures.Count(t, "kills", 1)
		l.serves()
		figures.Print(t, "kill %d of a follower: %v without service", i+1, l.outage())
		assert.Less(t, l.outage(), longestOutage)
		require.NoError(t, c.Revive(follower))
		require.NoError(t, c.Ready(t.Context()))
	}
	l.finish("follower killed")
}

// Without most of the members nothing is served, and with them everything is there.
func TestAllMembersAreKilled(t *testing.T) {
	mostFail(t, "all members", func(*etcdtest.Cluster, int) []int { return []int{0, 1, 2} })
}

// The leader alone serves nothing, although it still leads for a while.
func TestBothFollowersAreKilled(t *testing.T) {
	mostFail(t, "both followers", others)
}

// mostFail kills members that are needed, and lets them come back.
func mostFail(t *testing.T, which string, of func(c *etcdtest.Cluster, leader int) []int) {
	t.Helper()
	c := start(t, etcdtest.Options{})
	l := begin(t, c)
	for i := range times(t) {
		l.serves()
		leader, err := c.Leader(t.Context())
		require.NoError(t, err)
		victims := of(c, leader)
		l.without()
		require.NoError(t, c.Kill(victims...))
		figures.Count(t, "kills", len(victims))
		after := l.count()
		pass(t, 2*time.Second)
		assert.LessOrEqual(t, l.count(), after+producers+workers, "calls answered by nobody")
		began := time.Now()
		require.NoError(t, c.Revive(victims...))
		require.NoError(t, c.Ready(t.Context()))
		figures.Print(t, "kill %d of %s: ready %v after their start", i+1, which, time.Since(began).Round(10*time.Millisecond))
	}
	l.serves()
	l.finish(which + " killed")
}

// A leader that was stopped during an election does not answer with what it knew before.
func TestStoppedLeaderDoesNotAnswerFromThePast(t *testing.T) {
	c := start(t, etcdtest.Options{})
	leader, err := c.Leader(t.Context())
	require.NoError(t, err)
	at := func(members ...int) kv.Engine {
		var endpoints []string
		for _, i := range members {
			endpoints = append(endpoints, c.Endpoint(i))
		}
		e, err := etcd.New(t.Context(), clientv3.Config{Endpoints: endpoints}, "past")
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		return e
	}
	old, rest := at(leader), at(others(c, leader)...)
	for i := range times(t) {
		commit(t, rest, put("k", "before"))
		require.Equal(t, []string{"k=before"}, read(t, view(t, old), kv.Range{From: []byte("k")}))
		require.NoError(t, c.Pause(leader))
		figures.Count(t, "stops", 1)
		_, err = c.Leader(t.Context(), others(c, leader)...)
		require.NoError(t, err)
		after := fmt.Sprint("after ", i)
		commit(t, rest, put("k", after))

		answer := make(chan [][]kv.Item, 1)
		v := view(t, old)
		go func() {
			defer close(answer)
			items, err := v.Read(t.Context(), kv.Range{From: []byte("k")})
			assert.NoError(t, err)
			answer <- items
		}()
		select { // until the question is at the leader
		case <-time.After(200 * time.Millisecond):
		case <-answer:
			require.Fail(t, "a stopped member answered")
		}
		require.NoError(t, c.Resume(leader))
		items := <-answer
		require.Len(t, items, 1)
		require.Len(t, items[0], 1)
		assert.Equal(t, after, string(items[0][0].Value))
		require.NoError(t, c.Ready(t.Context()))
		leader, err = c.Leader(t.Context())
		require.NoError(t, err)
		old, rest = at(leader), at(others(c, leader)...)
	}
}

// When the file of the cluster is full, calls that need room apply nothing and say what to do, reads and deletes go on, and so does everything
// once there is room.
func TestFullCluster(t *testing.T) {
	c := start(t, etcdtest.Options{Members: 1, NoSync: true, Flags: append([]string{"--quota-backend-bytes=33554432"}, etcdtest.Flags...)})
	e, err := etcd.New(t.Context(), clientv3.Config{Endpoints: c.Endpoints()}, "full")
	require.NoError(t, err)
	s, err := kv.Open(t.Context(), e, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	ctx := t.Context()
	payload := []byte(`"` + strings.Repeat("x", 1<<20-2) + `"`)
	add := func(queue string) error {
		_, err := s.Enqueue(ctx, contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: queue, Kind: "k", Payload: payload}}})
		return err
	}
	const old = 20 // two thirds of the quota, which quick writes exceed by a few: a member looks how much it has ten times a second
	for range old {
		require.NoError(t, add("old"))
	}
	_, err = s.Cancel(ctx, contract.Filter{Queue: "old"}, 100)
	require.NoError(t, err)

	var full error
	for added := 0; full == nil || errors.Is(full, contract.ErrInDoubt); added++ { // the member may look between its check of a commit and the commit
		require.Less(t, added, 100, "the cluster has a small quota")
		full = add("new")
	}
	require.ErrorIs(t, full, contract.ErrUnavailable)
	require.ErrorContains(t, full, "raise --quota-backend-bytes")
	e.KeepsAtMost(1)
	assert.Equal(t, []string{"no_spare_member", "nearly_full", "no_space", "no_compaction"}, findings(t, s))
	before, err := s.Count(ctx, contract.Filter{})
	require.NoError(t, err, "reads go on")

	deleted, err := s.Delete(ctx, contract.Filter{Queue: "old"}, 100)
	require.NoError(t, err, "deletes go on")
	assert.Len(t, deleted, old)
	require.ErrorIs(t, add("new"), contract.ErrUnavailable, "until the alarm is disarmed")

	client := c.Client()
	at, err := client.Get(ctx, "full")
	require.NoError(t, err)
	_, err = client.Compact(ctx, at.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	compacted := findings(t, s)
	assert.Contains(t, compacted, "no_space", "until the alarm is disarmed")
	assert.NotContains(t, compacted, "no_compaction")
	_, err = client.Defragment(ctx, c.Endpoint(0))
	require.NoError(t, err)
	_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	require.NoError(t, err)
	assert.NotContains(t, findings(t, s), "no_space")
	require.NoError(t, add("new"))
	after, err := s.Count(ctx, contract.Filter{})
	require.NoError(t, err)
	require.Len(t, before.Queues, 2)
	require.Len(t, after.Queues, 1)
	for i := range before.Queues {
		if q := before.Queues[i]; q.Queue == "new" {
			assert.Equal(t, q.Jobs[contract.Ready]+1, after.Queues[0].Jobs[contract.Ready], "nothing of what failed was added")
		}
	}
}
