package jqtest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

func threeJobs(t testing.TB) *jqtest.Store {
	t.Helper()
	s := jqtest.NewStore(t)
	enqueue(t, s, welcome{"Ada"}, nil)
	enqueue(t, s, welcome{"Grace"}, &jq.EnqueueOptions{Queue: "mail", Priority: new(3), UniqueKey: "grace", LimitKey: "acme", Tags: []string{"vip"}})
	enqueue(t, s, reminder{"Ada"}, &jq.EnqueueOptions{Delay: time.Hour})
	return s
}

func TestRequireEnqueuedFindsWhatIsThere(t *testing.T) {
	s := threeJobs(t)
	for name, c := range map[string]struct {
		want jqtest.Want
		ids  []int64
	}{
		"everything":        {jqtest.Want{}, []int64{1, 2, 3}},
		"by kind":           {jqtest.Want{Kind: "welcome", Times: 2}, []int64{1, 2}},
		"by payload":        {jqtest.Want{Payload: welcome{"Ada"}}, []int64{1}},
		"by raw payload":    {jqtest.Want{Payload: jq.Raw{Name: "welcome", Document: json.RawMessage(` {"Name": "Ada"} `)}}, []int64{1}},
		"by queue":          {jqtest.Want{Queue: "mail"}, []int64{2}},
		"by delay":          {jqtest.Want{Delay: time.Hour}, []int64{3}},
		"by unique key":     {jqtest.Want{UniqueKey: "grace"}, []int64{2}},
		"by limit key":      {jqtest.Want{LimitKey: "acme"}, []int64{2}},
		"by tag":            {jqtest.Want{Tags: []string{"vip"}}, []int64{2}},
		"by priority":       {jqtest.Want{Priority: new(3)}, []int64{2}},
		"by priority zero":  {jqtest.Want{Priority: new(0)}, []int64{1, 3}},
		"by something else": {jqtest.Want{Where: func(j jq.Job) bool { return j.ID > 1 }}, []int64{2, 3}},
		"by all of it": {jqtest.Want{
			Payload: welcome{"Grace"}, Queue: "mail", UniqueKey: "grace", LimitKey: "acme", Tags: []string{"vip"}, Priority: new(3), Times: 1,
		}, []int64{2}},
	} {
		t.Run(name, func(t *testing.T) {
			var ids []int64
			for _, j := range jqtest.RequireEnqueued(t, s, c.want) {
				ids = append(ids, j.ID)
			}
			assert.Equal(t, c.ids, ids)
			assert.NotEmpty(t, failure(t, func(t testing.TB) { jqtest.RefuteEnqueued(t, s, c.want) }))
		})
	}
}

func TestRequireEnqueuedSaysWhatIsMissing(t *testing.T) {
	s := threeJobs(t)
	said := failure(t, func(t testing.TB) {
		jqtest.RequireEnqueued(t, s, jqtest.Want{
			Payload: welcome{"Ada"}, Queue: "mail", Delay: time.Hour, UniqueKey: "ada", LimitKey: "nobody", Tags: []string{"vip"}, Priority: new(9),
		})
	})
	assert.Equal(t, `no job was enqueued with kind welcome, payload {"Name":"Ada"}, queue mail, delay 1h0m0s, unique key "ada", limit key "nobody", priority 9, tags ["vip"]
Those that were:
  job 1, welcome in default, ready: {"Name":"Ada"} (another queue, delay 0s, unique key "", limit key "", priority 0, no tag "vip")
  job 2, welcome in mail, ready: {"Name":"Grace"} (another payload, delay 0s, unique key "grace", limit key "acme", priority 3)
  job 3, reminder in default, ready: {"Name":"Ada"} (another kind, another queue, unique key "", limit key "", priority 0, no tag "vip")`, said)
}

func TestRequireEnqueuedCounts(t *testing.T) {
	s := threeJobs(t)
	said := failure(t, func(t testing.TB) { jqtest.RequireEnqueued(t, s, jqtest.Want{Kind: "welcome", Times: 1}) })
	assert.Equal(t, `want 1 jobs enqueued with kind welcome, found 2
Those that match:
  job 1, welcome in default, ready: {"Name":"Ada"}
  job 2, welcome in mail, ready: {"Name":"Grace"}
Those that do not:
  job 3, reminder in default, ready: {"Name":"Ada"} (another kind)`, said)
}

func TestRefuteEnqueuedSaysWhatIsThere(t *testing.T) {
	s := threeJobs(t)
	jqtest.RefuteEnqueued(t, s, jqtest.Want{Kind: "farewell"})
	said := failure(t, func(t testing.TB) {
		jqtest.RefuteEnqueued(t, s, jqtest.Want{Kind: "reminder", Where: func(jq.Job) bool { return true }})
	})
	assert.Equal(t, `want no job enqueued with kind reminder, what Where says
There is:
  job 3, reminder in default, ready: {"Name":"Ada"}`, said)
}

func TestEmptyStoreIsSaidToBeEmpty(t *testing.T) {
	s := jqtest.NewStore(t)
	said := failure(t, func(t testing.TB) { jqtest.RequireEnqueued(t, s, jqtest.Want{}) })
	assert.Equal(t, "no job was enqueued with whatever", said)
}
