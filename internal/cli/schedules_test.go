package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqtest"
)

// The commands do the same with --server as with --store, and so does doctor.
func TestSchedulesOfAServer(t *testing.T) {
	s := jqtest.NewStore(t)
	url, secret := servedWith(t, s, httpapi.Operator)
	jobq := func(args ...string) (code int, out, errs string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"jobq", "--server", url, "--token", secret}, args...), quiet(&stdout, &stderr))
		return code, stdout.String(), stderr.String()
	}
	for _, step := range []struct {
		args []string
		says string
	}{
		{[]string{"schedules", "set", "nightly", "0 2 * * *", "report", `{"to":"ada"}`, "--timezone", "Europe/Berlin"}, "schedule nightly: next at 2026-01-02T02:00:00+01:00\n"},
		{[]string{"schedules", "set", "poll", "@every 90s", "poll", "--overlap", "skip", "--paused"}, "schedule poll: paused\n"},
		{[]string{"schedules", "run", "poll"}, "added job 1 to queue default\n"},
		{[]string{"schedules", "resume", "poll"}, "schedule poll: next at 2026-01-01T12:01:30Z\n"},
		{[]string{"schedules", "pause", "nightly"}, "schedule nightly: paused\n"},
		{[]string{"schedules", "reset", "poll"}, "schedule poll: next at 2026-01-01T12:01:30Z\n"},
		{[]string{"schedules", "ls"}, "" +
			"schedule  expression  zone           queue    kind    next                  last                  last job\n" +
			"nightly   0 2 * * *   Europe/Berlin  default  report  paused                -                     -\n" +
			"poll      @every 90s  UTC            default  poll    2026-01-01T12:01:30Z  2026-01-01T12:00:00Z  1\n"},
		{[]string{"schedules", "rm", "nightly"}, "schedule nightly: removed\n"},
	} {
		code, out, errs := jobq(step.args...)
		require.Equal(t, exitOK, code, errs)
		assert.Equal(t, step.says, out, step.args)
	}
	_, _, errs := jobq("schedules", "run", "poll")
	assert.Equal(t, "jobq schedules run: the schedule \"poll\" must not overlap: its previous job, 1, has not ended\n", errs)
	_, _, errs = jobq("schedules", "rm", "nightly")
	assert.Equal(t, "jobq schedules rm: there is no schedule \"nightly\"\n", errs)
	s.Clock.Add(5 * time.Minute)
	_, out, _ := jobq("doctor")
	assert.Contains(t, out, "late_schedule: the schedule poll was due 3m30s ago, and no server has fired it\n")
}

// A worker on a server fires schedules, with the token of a worker.
func TestWorkerOfAServerFiresSchedules(t *testing.T) {
	s := jqtest.NewStore(t)
	_, err := s.SetSchedule(t.Context(), jq.Schedule{
		Name: "hourly", Cron: "@every 1h", NextAt: jqtest.Epoch, Job: jq.NewJob{Queue: "default", Kind: "report", Payload: []byte(`{"to":"ada"}`)},
	})
	require.NoError(t, err)
	url, secret := servedWith(t, s, httpapi.Worker)
	w := newSandbox(t)
	worker := w.start("working on", "work", "--server", url, "--token", secret, "--exec", `sh -c 'cat >> runs; echo >> runs'`)
	assert.Contains(t, w.lines("runs", 1)[0], `{"to":"ada"}`)
	w.end(worker)
	list, err := jq.NewClient(s, nil).Schedules(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []any{int64(1), jqtest.Epoch.Add(time.Hour)}, []any{list[0].LastJob, list[0].NextAt.UTC()})
}
