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

// Databases have answers that older programs have written.
func TestAnswersKeepTheirFormInDatabases(t *testing.T) {
	for text, answers := range map[string][]store.Enqueued{
		`[{"ID":1,"State":"ready","Duplicate":false}]`: {{ID: 1, State: store.Ready}},
		`[{"ID":[1,3],"State":"ready","Duplicate":false},{"ID":4,"State":"blocked","Duplicate":false},{"ID":6,"State":"blocked","Duplicate":false}]`: {
			{ID: 1, State: store.Ready}, {ID: 2, State: store.Ready}, {ID: 3, State: store.Ready}, {ID: 4, State: store.Blocked}, {ID: 6, State: store.Blocked},
		},
		`[{"ID":5,"State":"ready","Duplicate":true},{"ID":[5,6],"State":"ready","Duplicate":true,"Replaced":true},{"ID":9007199254740993,"State":"","Duplicate":true}]`: {
			{ID: 5, State: store.Ready, Duplicate: true}, {ID: 5, State: store.Ready, Duplicate: true, Replaced: true},
			{ID: 6, State: store.Ready, Duplicate: true, Replaced: true}, {ID: 9007199254740993, Duplicate: true},
		},
	} {
		var kept sqlkit.Request
		once := func(add func(store.EnqueueRequest) ([]store.Enqueued, error)) ([]store.Enqueued, error) {
			return sqlkit.Once(request("key", "k"), add,
				func(string) (sqlkit.Request, bool, error) { return kept, kept.Answer != "", nil },
				func(_ string, r sqlkit.Request) error { kept = r; return nil })
		}
		_, err := once(func(store.EnqueueRequest) ([]store.Enqueued, error) { return answers, nil })
		require.NoError(t, err)
		assert.JSONEq(t, text, kept.Answer)
		again, err := once(nil)
		require.NoError(t, err)
		assert.Equal(t, answers, again)
	}
}
