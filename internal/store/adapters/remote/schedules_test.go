package remote

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

func aSchedule(name string) store.Schedule {
	return store.Schedule{Name: name, Cron: "@daily", Job: plain("k"), NextAt: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
}

// TestOddAnswersAboutSchedules are in doubt after a change, and are refused after a look.
func TestOddAnswersAboutSchedules(t *testing.T) {
	set := func(s *Store) error { _, err := s.SetSchedule(t.Context(), aSchedule("s")); return err }
	fire := func(s *Store) error {
		_, err := s.Fire(t.Context(), []store.Firing{{Name: "s", Revision: 1}})
		return err
	}
	look := func(s *Store) error {
		_, err := s.Schedules(t.Context(), store.ScheduleFilter{}, store.Page{Limit: 1})
		return err
	}
	for _, k := range []struct {
		what string
		call func(*Store) error
		text string
		want error
	}{
		{"another schedule", set, `{"name":"t","revision":"1"}`, store.ErrInDoubt},
		{"no revision", set, `{"name":"s"}`, store.ErrInDoubt},
		{"no schedule", set, `{}`, store.ErrInDoubt},
		{"no outcome", fire, `{"fired":[]}`, store.ErrInDoubt},
		{"the outcome of another", fire, `{"fired":[{"name":"t","status":"ok"}]}`, store.ErrInDoubt},
		{"an unknown status", fire, `{"fired":[{"name":"s","status":"great"}]}`, store.ErrInDoubt},
		{"no list", look, `{"now":"2026-01-02T00:00:00Z"}`, store.ErrUnavailable},
		{"no time", look, `{"schedules":[]}`, store.ErrUnavailable},
		{"too many", look, `{"now":"2026-01-02T00:00:00Z","schedules":[{"name":"a"},{"name":"b"}]}`, store.ErrUnavailable},
	} {
		s := opened(t, Options{}, write(http.StatusOK, wire.JSON, k.text))
		assertOnly(t, k.call(s), k.want, "this is no answer of a jq server", k.what)
	}
}

// TestServerThatKnowsNoSchedules: a program that is newer than the server goes on without them.
func TestServerThatKnowsNoSchedules(t *testing.T) {
	old := wire.Fail{Type: wire.NoSuchCall, Title: "there is no such call", Status: http.StatusNotFound}
	s := openedOn(t, Options{}, func(*http.Request) (*http.Response, error) { return reply(old.Status, old), nil })
	_, err := s.Schedules(t.Context(), store.ScheduleFilter{}, store.Page{Limit: 1})
	assertOnly(t, err, errors.ErrUnsupported, "is it older than this program", "a look")
	_, err = s.SetSchedule(t.Context(), aSchedule("s"))
	assertOnly(t, err, errors.ErrUnsupported, "is it older than this program", "a change")
}

// TestWorkersTokenFires what is due, though it gets no payload.
func TestWorkersTokenFires(t *testing.T) {
	behind := memory.New(memory.Options{})
	known, secret := tokens(t, httpapi.Worker)
	server, err := serve(behind, httpapi.Options{Tokens: known})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.stop()) }()
	s, err := Open(t.Context(), server.url, &Options{Token: secret})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	due := aSchedule("due")
	due.Cron = "@every 24h"
	_, err = behind.SetSchedule(t.Context(), due)
	require.NoError(t, err)
	page, err := s.Schedules(t.Context(), store.ScheduleFilter{Due: true, Within: time.Second}, store.Page{Limit: 1})
	require.NoError(t, err)
	assert.Empty(t, page.Schedules[0].Job.Payload)
	assert.True(t, s.Redacted())
	fired, err := s.Fire(t.Context(), []store.Firing{{Name: "due", Revision: page.Schedules[0].Revision, For: due.NextAt, Next: page.Now.Add(time.Hour)}})
	require.NoError(t, err)
	assert.Equal(t, store.StatusOK, fired[0].Status)
	job, err := behind.Get(t.Context(), fired[0].Job.ID)
	require.NoError(t, err)
	assert.Equal(t, due.Job.Payload, job.Payload)
	_, err = s.SetSchedule(t.Context(), aSchedule("new"))
	assertOnly(t, err, store.ErrDenied, "this is for: operator", "a change")
}

// TestLargestPageOfSchedules has payloads that are the longest when they are written into JSON once more, and names that are.
func TestLargestPageOfSchedules(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: tens of megabytes of JSON take too long there")
	}
	behind := memory.New(memory.Options{})
	server, err := serve(behind, httpapi.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.stop()) }()
	s, err := Open(t.Context(), server.url, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	long := strings.Repeat("\x01", store.MaxNameBytes)
	const most = store.MaxPageTemplates / store.MaxTemplateBytes
	for i := range most + 1 {
		one := aSchedule(long[:store.MaxNameBytes-2] + fmt.Sprintf("%02d", i))
		one.Cron, one.Timezone, one.Owner = long, long, long
		one.Job.Queue, one.Job.Kind, one.Job.Trace, one.Job.UniqueKey = long, long, long, long
		one.Job.Payload = []byte(` ["` + strings.Repeat(`\\`, (store.MaxTemplateBytes-5)/2) + `"]`)
		for range store.MaxTags {
			one.Job.Tags = append(one.Job.Tags, long)
		}
		kept, err := s.SetSchedule(t.Context(), one)
		require.NoError(t, err)
		assert.Equal(t, one.Job, kept.Job)
	}
	page, err := s.Schedules(t.Context(), store.ScheduleFilter{}, store.Page{Limit: store.MaxItems})
	require.NoError(t, err)
	assert.Len(t, page.Schedules, most)
	page, err = s.Schedules(t.Context(), store.ScheduleFilter{}, store.Page{Limit: store.MaxItems, Cursor: page.Next})
	require.NoError(t, err)
	assert.Len(t, page.Schedules, 1)
}
