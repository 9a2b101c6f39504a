package remote

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// TestEnqueueIsRepeated after its answer was lost, with one key, and says of the whole what is known.
func TestEnqueueIsRepeated(t *testing.T) {
	cut := errors.New("cut")
	busy := wire.FailOf(store.ErrUnavailable)
	doubt := wire.FailOf(store.ErrInDoubt)
	other := wire.FailOf(&store.InvalidError{Item: -1, Field: "request_key", Rule: "was used for other jobs within a day"})
	added := wire.Enqueued{Jobs: []store.Enqueued{{ID: 7, State: store.Ready}}}
	for name, k := range map[string]struct {
		answers []any // an error, a Fail, a status or an answer
		want    error
		calls   int
	}{
		"AtOnce":                    {[]any{added}, nil, 1},
		"Once":                      {[]any{cut, added}, nil, 2},
		"Thrice":                    {[]any{cut, doubt, 502, added}, nil, 4},
		"NotForEver":                {[]any{cut, cut, cut, cut, added}, store.ErrInDoubt, 4},
		"Unavailable":               {[]any{busy, added}, store.ErrUnavailable, 1},
		"UnavailableAfterADoubt":    {[]any{cut, busy, busy, busy, added}, store.ErrInDoubt, 4},
		"RefusedAfterADoubt":        {[]any{502, 401, 403, busy}, store.ErrInDoubt, 4},
		"AnsweredAfterAllThat":      {[]any{cut, busy, 401, added}, nil, 4},
		"InvalidAfterADoubt":        {[]any{cut, other}, store.ErrInvalid, 2},
		"NothingIsRepeatedForOther": {[]any{other, added}, store.ErrInvalid, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var keys []string
				s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
					assert.Nil(t, r.GetBody, "a transport could repeat it in silence")
					body := taken[wire.Enqueue](r)
					assert.Len(t, body.Jobs, 1)
					next := k.answers[len(keys)]
					keys = append(keys, r.Header.Get(wire.RequestKeyHeader))
					switch a := next.(type) {
					case error:
						if f, ok := errors.AsType[wire.Fail](a); ok {
							return reply(f.Status, f), nil
						}
						return nil, a
					case int:
						return reply(a, "<html>"), nil
					default:
						return reply(http.StatusCreated, a), nil
					}
				})
				got, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain("k")}})
				if k.want == nil {
					assert.NoError(t, err)
					assert.Equal(t, []store.Enqueued{{ID: 7, State: store.Ready}}, got)
				} else {
					assertOnly(t, err, k.want, "", name)
				}
				assert.Len(t, keys, k.calls)
				for _, key := range keys {
					assert.Equal(t, keys[0], key)
					assert.NotEmpty(t, key)
				}
			})
		})
	}
}

// TestEnqueueGivesEachCallAKeyOfItsOwn, unless the caller does.
func TestEnqueueGivesEachCallAKeyOfItsOwn(t *testing.T) {
	keys := map[string]bool{}
	s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
		keys[r.Header.Get(wire.RequestKeyHeader)] = true
		return reply(http.StatusCreated, wire.Enqueued{Jobs: []store.Enqueued{{ID: 7}}}), nil
	})
	for range 10 {
		assert.NoError(t, enqueueOne(t.Context(), s))
	}
	assert.Len(t, keys, 10)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain("k")}, RequestKey: "the caller's: 100 %"})
	assert.NoError(t, err)
	assert.True(t, keys["the%20caller's:%20100%20%25"], "%v", keys)
}

// TestEnqueueEndsWithItsContext in the middle of a pause as well.
func TestEnqueueEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
			taken[any](r)
			return reply(502, "<html>"), nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), repeats[0]+repeats[1]/2)
		defer cancel()
		began := time.Now()
		err := enqueueOne(ctx, s)
		assertOnly(t, err, store.ErrInDoubt, "", "Enqueue")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, repeats[0]+repeats[1]/2, time.Since(began))
	})
}
