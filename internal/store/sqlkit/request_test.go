package sqlkit_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A book remembers requests, and counts the jobs that were added.
type book struct {
	kept  map[string]sqlkit.Request
	added int
	fail  error // of every look
}

func (b *book) once(req store.EnqueueRequest) ([]store.Enqueued, error) {
	return sqlkit.Once(req,
		func(req store.EnqueueRequest) ([]store.Enqueued, error) {
			b.added += len(req.Jobs)
			return []store.Enqueued{{ID: int64(b.added), State: store.Ready}}, nil
		},
		func(key string) (sqlkit.Request, bool, error) {
			first, known := b.kept[key]
			return first, known, b.fail
		},
		func(key string, r sqlkit.Request) error {
			b.kept[key] = r
			return nil
		})
}

func request(key, kind string) store.EnqueueRequest {
	return store.EnqueueRequest{RequestKey: key, Jobs: []store.NewJob{{Queue: "q", Kind: kind}}}
}

func TestOnceAddsTheSameRequestOnce(t *testing.T) {
	b := &book{kept: map[string]sqlkit.Request{}}
	first, err := b.once(request("key", "k"))
	require.NoError(t, err)
	again, err := b.once(request("key", "k"))
	require.NoError(t, err)
	assert.Equal(t, first, again, "the answer to a repeat")
	assert.Equal(t, 1, b.added, "jobs added by the request and its repeat")
	other, err := b.once(request("other", "k"))
	require.NoError(t, err)
	assert.NotEqual(t, first, other, "the answer under another key")
}

func TestOnceRefusesOtherJobsUnderTheKey(t *testing.T) {
	b := &book{kept: map[string]sqlkit.Request{}}
	_, err := b.once(request("key", "k"))
	require.NoError(t, err)
	_, err = b.once(request("key", "another"))
	assert.ErrorIs(t, err, store.ErrInvalid)
	assert.Equal(t, 1, b.added, "jobs added")
}

func TestOnceRemembersNothingWithoutAKeyOrJobs(t *testing.T) {
	b := &book{kept: map[string]sqlkit.Request{}}
	for range 2 {
		_, err := b.once(request("", "k"))
		require.NoError(t, err)
		answers, err := b.once(store.EnqueueRequest{RequestKey: "key"})
		require.NoError(t, err)
		assert.Empty(t, answers)
	}
	assert.Equal(t, 2, b.added, "jobs added")
	assert.Empty(t, b.kept, "requests kept")
}

func TestOnceAddsNothingWhereTheKeyCanNotBeLookedUp(t *testing.T) {
	b := &book{fail: errors.New("no look")}
	_, err := b.once(request("key", "k"))
	assert.ErrorIs(t, err, b.fail)
	assert.Zero(t, b.added, "jobs added")
}

// Databases have answers that older programs have written, and older programs read what newer ones write.
func TestAnswersKeepTheirFormInDatabases(t *testing.T) {
	b := &book{kept: map[string]sqlkit.Request{}}
	first, err := b.once(request("key", "k"))
	require.NoError(t, err)
	kept := b.kept["key"]
	assert.JSONEq(t, `[{"ID":1,"State":"ready","Duplicate":false}]`, kept.Answer)
	again, err := b.once(request("key", "k"))
	require.NoError(t, err)
	assert.Equal(t, first, again)
	kept.Answer = `[{"ID":9007199254740993,"State":"","Duplicate":true}]`
	b.kept["key"] = kept
	old, err := b.once(request("key", "k"))
	require.NoError(t, err)
	assert.Equal(t, []store.Enqueued{{ID: 9007199254740993, Duplicate: true}}, old)
}
