package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// jobOne is the answer with job 1.
func jobOne(state store.State) *http.Response {
	detail := wire.DetailOf(store.JobDetail{Job: store.Job{ID: 1, Queue: "q", Kind: "k", State: state}, History: []store.Attempt{}})
	return reply(http.StatusOK, detail)
}

// late answers after a time, unless the client leaves first.
func late(r *http.Request, after time.Duration, with *http.Response) (*http.Response, error) {
	select {
	case <-time.After(after):
		return with, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func TestAwaitEndWaitsAtTheServer(t *testing.T) {
	for name, k := range map[string]struct {
		after time.Duration
		err   error
	}{
		"AsLongAsItTakes": {39 * time.Second, nil},
		"NotForEver":      {41 * time.Second, store.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
					assert.Equal(t, "/v1/jobs/1?wait=30s", r.URL.String()[len("http://server"):])
					return late(r, k.after, jobOne(store.InFlight))
				})
				began := time.Now()
				job, err := s.AwaitEnd(t.Context(), 1)
				require.ErrorIs(t, err, k.err)
				if err == nil {
					assert.Equal(t, store.InFlight, job.State)
				}
				assert.Equal(t, min(k.after, 40*time.Second), time.Since(began))
			})
		})
	}
}

// TestAwaitEndLooksWhereTooManyWait: a server without room for those who wait still answers those who do not.
func TestAwaitEndLooksWhereTooManyWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
			if r.URL.RawQuery == "" {
				return jobOne(store.Succeeded), nil
			}
			full := reply(http.StatusTooManyRequests, wire.Fail{Type: "urn:jq:too_many_waiting", Status: http.StatusTooManyRequests})
			full.Header.Set("Retry-After", "1")
			return full, nil
		})
		job, err := s.AwaitEnd(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, store.Succeeded, job.State)
	})
}

// TestWaitSurvivesARestartOfTheServer: the connection breaks, then nobody listens, then the server shuts down while it waits and answers
// with the job as it is, and the next one knows no waiting.
func TestWaitSurvivesARestartOfTheServer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var asked []time.Duration
		began := time.Now()
		s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
			asked = append(asked, time.Since(began))
			switch len(asked) {
			case 1:
				return late(r, 30*time.Second, jobOne(store.InFlight))
			case 2:
				_, err := late(r, 5*time.Second, nil)
				return nil, errors.Join(err, io.ErrUnexpectedEOF)
			case 3, 4: // the second try of one look, and the next look
				return nil, io.ErrUnexpectedEOF
			case 7:
				return late(r, 100*time.Millisecond, jobOne(store.InFlight))
			case 10:
				return jobOne(store.Succeeded), nil
			default:
				return jobOne(store.InFlight), nil
			}
		})
		job, err := await.Until(t.Context(), clock.New(), s, 1)
		require.NoError(t, err)
		assert.Equal(t, store.Succeeded, job.State)
		for i := 5; i < len(asked); i++ {
			assert.GreaterOrEqual(t, asked[i]-asked[i-1], time.Second, "a server that answers at once is asked each second")
		}
		assert.Equal(t, []time.Duration{0, 30 * time.Second, 35 * time.Second}, asked[:3])
	})
}

// TestWaitEndsAtOnceOverHTTP: another client of the server finishes the job, and one request has waited for it.
func TestWaitEndsAtOnceOverHTTP(t *testing.T) {
	v, err := serve(memory.New(memory.Options{}), httpapi.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.stop()) })
	waiter, worker := openServed(t, v), openServed(t, v)
	require.NoError(t, enqueueOne(t.Context(), worker))
	jobs, err := worker.FetchAndClaim(t.Context(), claimOf(1))
	require.NoError(t, err)

	type ended struct {
		job store.JobDetail
		err error
	}
	got := make(chan ended, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		job, err := waiter.AwaitEnd(ctx, jobs[0].ID)
		got <- ended{job, err}
	}()
	_, err = worker.Ack(t.Context(), []store.Ack{{Lease: jobs[0].Lease(), Result: []byte(`"done"`)}})
	require.NoError(t, err)
	e := <-got
	require.NoError(t, e.err)
	assert.Equal(t, store.Succeeded, e.job.State)
	assert.Equal(t, `"done"`, string(e.job.Result))
	_, err = waiter.AwaitEnd(ctx, 4711)
	assert.ErrorIs(t, err, store.ErrNotFound)
}

func openServed(t *testing.T, v *served) *Store {
	t.Helper()
	s, err := Open(t.Context(), v.url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
