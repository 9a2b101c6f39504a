package remote

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

var mine = store.Job{ID: 7, Queue: "q", Worker: "w", State: store.InFlight, Token: 3, Payload: []byte("1")}

// TestLateClaimIsGivenBack: its caller is gone when the answer comes.
func TestLateClaimIsGivenBack(t *testing.T) {
	for name, k := range map[string]struct {
		late    time.Duration // from when the caller is gone
		fails   int           // of the releases
		busy    bool          // the server is, where they fail
		close   bool          // the store is closed meanwhile
		want    int           // releases
		abandon bool          // the server sees that nobody is there
	}{
		"Soon":          {late: time.Second, want: 1},
		"ReleaseIsLost": {late: time.Second, fails: 1, want: 2},
		"ReleaseFails":  {late: time.Second, fails: 9, want: 2},
		"ServerIsBusy":  {late: time.Second, fails: 2, busy: true, want: 3},
		"StoreIsClosed": {late: time.Second, close: true, want: 1},
		"TooLate":       {late: afterlife + time.Second, abandon: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var released []wire.NAcks
				abandoned := false
				s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == wire.PathNAck {
						released = append(released, taken[wire.NAcks](r))
						switch failed := len(released) <= k.fails; {
						case failed && k.busy:
							answer := reply(503, wire.Fail{Type: wire.Busy, Title: "busy", Status: 503})
							answer.Header.Set("Retry-After", "1")
							return answer, nil
						case failed:
							return reply(502, "<html>"), nil
						}
						return reply(200, wire.ResultsOf([]store.Outcome{{ID: 7, Status: store.StatusOK}})), nil
					}
					taken[wire.Claim](r)
					select {
					case <-time.After(time.Second + k.late):
						return reply(200, wire.JobsOf([]store.Job{mine})), nil
					case <-r.Context().Done():
						abandoned = true
						return nil, r.Context().Err()
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				jobs, err := s.FetchAndClaim(ctx, claimOf(1))
				assert.Empty(t, jobs)
				assertOnly(t, err, store.ErrInDoubt, "", name)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, time.Second, time.Since(began))
				if !k.close {
					<-time.After(2 * afterlife)
				}
				require.NoError(t, s.Close())
				assert.Equal(t, k.abandon, abandoned)
				require.Len(t, released, k.want)
				for _, n := range released {
					assert.Equal(t, []wire.NAck{{Lease: wire.Lease{ID: 7, Token: 3}, Form: store.Release}}, n.Jobs)
				}
			})
		})
	}
}

// TestClaimOfOthersIsNoAnswer: what was not asked for is not run.
func TestClaimOfOthersIsNoAnswer(t *testing.T) {
	for name, change := range map[string]func(*store.Job){
		"AnotherQueue": func(j *store.Job) { j.Queue = "another" }, "AnotherWorker": func(j *store.Job) { j.Worker = "another" },
		"NotInFlight": func(j *store.Job) { j.State = store.Ready }, "NoToken": func(j *store.Job) { j.Token = 0 },
		"NoID": func(j *store.Job) { j.ID = 0 },
	} {
		other := mine
		change(&other)
		s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
			taken[wire.Claim](r)
			return reply(200, wire.JobsOf([]store.Job{other})), nil
		})
		_, err := s.FetchAndClaim(t.Context(), claimOf(1))
		assertOnly(t, err, store.ErrInDoubt, "is not claimed as was asked", name)
	}
	s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
		taken[wire.Claim](r)
		return reply(200, wire.JobsOf([]store.Job{mine, mine})), nil
	})
	_, err := s.FetchAndClaim(t.Context(), claimOf(1))
	assertOnly(t, err, store.ErrInDoubt, "2 jobs, the limit is 1", "too many")
}
