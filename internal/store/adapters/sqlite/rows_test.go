package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Jobs that differ in any column that an insert writes are not alike, except in the payload.
func TestAlikeComparesWhatAnInsertWrites(t *testing.T) {
	var a store.Record
	for _, c := range inserted {
		var b store.Record
		switch field := c.Field(&b).(type) {
		case *sqlkit.Int:
			*field = 1
		case *string:
			*field = "x"
		case *sqlkit.Time:
			*field = sqlkit.Time(time.Unix(1, 0))
		case *sqlkit.Micros:
			*field = sqlkit.Micros(time.Second)
		case *sqlkit.List:
			*field = sqlkit.List{"x"}
		case sqlkit.Rules:
			require.NoError(t, field.Scan("0 0 0 0 1000000"))
			for _, other := range []string{"1 0 0 0 0", "0 1 0 0 0", "0 0 1 0 0", "0 0 0 1 0"} {
				var third store.Record
				require.NoError(t, sqlkit.Rules{Of: &third.Job}.Scan(other))
				assert.False(t, alike(&a.Job, &third.Job), other)
			}
		case sqlkit.Scheduled:
			b.Extras = b.Extras.WithScheduled(&store.Scheduled{})
		case sqlkit.ExpiresAt:
			b.Extras = b.Extras.WithExpiresAt(time.Unix(1, 0))
		case sqlkit.Group:
			b.Extras = b.Extras.WithGroup("g")
			member := store.Job{Extras: b.Extras.WithGroup("g")}
			assert.True(t, alike(&b.Job, &member), "two jobs of a group")
		case sqlkit.LimitKey:
			b.Extras = b.Extras.WithLimitKey("k")
		case *[]byte:
			*field = []byte("1")
		default:
			require.Fail(t, "a column of another type", "%T", field)
		}
		assert.Equal(t, c.Name == "payload", alike(&a.Job, &b.Job), "beside another %s", c.Name)
	}
	assert.Equal(t, "payload", inserted[len(inserted)-1].Name)
}

// Jobs come back as they were added and in their order, whether they differ in their payloads alone or in more.
func TestJobsInOneCallKeepTheirOrder(t *testing.T) {
	for name, kind := range map[string]string{"Alike": "k", "Different": "k%d"} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			req := newJobs(163)
			for i := range req.Jobs {
				req.Jobs[i].Payload = fmt.Appendf(nil, `{"n":%d}`, i)
				if name == "Different" {
					req.Jobs[i].Kind = fmt.Sprintf(kind, i)
				}
			}
			added, err := s.Enqueue(t.Context(), req)
			require.NoError(t, err)
			for i, j := range claimAll(t, s, 1000) {
				assert.Equal(t, added[i].ID, j.ID)
				assert.Equal(t, string(req.Jobs[i].Payload), string(j.Payload))
				assert.Equal(t, req.Jobs[i].Kind, j.Kind)
			}
		})
	}
}

// Acks and heartbeats change the jobs of their leases and no others, however the ids lie.
func TestLeasesLieAsTheyMay(t *testing.T) {
	for name, chosen := range map[string]func(i int) bool{
		"All":           func(int) bool { return true },
		"EverySecond":   func(i int) bool { return i%2 == 0 },
		"AllButATenth":  func(i int) bool { return i%10 != 3 },
		"FirstAndTails": func(i int) bool { return i == 0 || i > 40 },
	} {
		t.Run(name, func(t *testing.T) {
			clk := newClock()
			s := openAt(t, newPath(t), &Options{Clock: clk})
			enqueue(t, s, 60)
			jobs := claimAll(t, s, 20)
			for _, j := range jobs[:7] { // their next claim gives them another token
				_, err := s.NAck(t.Context(), []store.NAck{{Lease: j.Lease(), Form: store.Release}})
				require.NoError(t, err)
			}
			jobs = append(jobs[7:], claimAll(t, s, 60)...)
			require.Len(t, jobs, 60)
			var held []store.Lease
			var acks []store.Ack
			for i := range jobs {
				if j := jobs[(i*37)%60]; chosen(int(j.ID)) {
					held, acks = append(held, j.Lease()), append(acks, store.Ack{Lease: j.Lease()})
				}
			}
			outcomes, err := s.Extend(t.Context(), held, time.Hour)
			require.NoError(t, err)
			for i, o := range outcomes {
				assert.Equal(t, store.Outcome{ID: held[i].ID, Status: store.StatusOK, State: store.InFlight, Token: held[i].Token, Next: clk.Now().Add(time.Hour)}, o)
			}
			outcomes, err = s.Ack(t.Context(), acks)
			require.NoError(t, err)
			for i, o := range outcomes {
				assert.Equal(t, store.Outcome{ID: held[i].ID, Status: store.StatusOK, State: store.Succeeded, Token: held[i].Token}, o)
			}
			for _, j := range jobs {
				now, err := s.Get(t.Context(), j.ID)
				require.NoError(t, err)
				if chosen(int(j.ID)) {
					assert.Equal(t, store.Succeeded, now.State)
				} else {
					assert.Equal(t, j.LeaseExpiresAt, now.LeaseExpiresAt, "job %d", j.ID)
				}
			}
			stale := append([]store.Ack{{Lease: store.Lease{ID: jobs[0].ID, Token: 99}}}, acks[1:]...)
			outcomes, err = s.Ack(t.Context(), stale)
			require.NoError(t, err)
			assert.Equal(t, store.StatusStale, outcomes[0].Status)
		})
	}
}
