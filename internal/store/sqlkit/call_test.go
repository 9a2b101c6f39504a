package sqlkit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

var (
	open = make(chan struct{})
	shut = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

	errDriver = errors.New("the driver's words")
)

func advice(error) string { return "what to do: " }

func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestAdmitNamesTheFirstObstacle(t *testing.T) {
	refused := &store.InvalidError{Item: -1, Field: "limit", Rule: "must be less"}
	for name, c := range map[string]struct {
		ctx    context.Context
		closed chan struct{}
		want   []error
	}{
		"Closed":  {ended(t), shut, []error{store.ErrClosed}},
		"Ended":   {ended(t), open, []error{store.ErrUnavailable, context.Canceled}},
		"Refused": {t.Context(), open, []error{refused}},
	} {
		t.Run(name, func(t *testing.T) {
			err := sqlkit.Admit(c.ctx, c.closed, refused)
			for _, want := range c.want {
				assert.ErrorIs(t, err, want)
			}
			if name != "Refused" {
				assert.NotErrorIs(t, err, store.ErrInvalid, "what comes first is named alone")
			}
		})
	}
	assert.NoError(t, sqlkit.Admit(t.Context(), open, nil))
}

func TestUnappliedLeavesTheWordsOfTheContractAlone(t *testing.T) {
	for _, err := range []error{
		nil, &store.InvalidError{Item: 3, Field: "payload", Rule: "must be JSON"}, store.ErrNotFound, store.ErrStaleLease,
		store.ErrAlreadyFinished, store.ErrUnavailable, store.ErrDenied, store.ErrInDoubt, store.ErrClosed, fmt.Errorf("item 2: %w", store.ErrStaleLease),
	} {
		assert.Equal(t, err, sqlkit.Unapplied(err, advice))
	}
}

func TestDriversErrorsGetAdvice(t *testing.T) {
	err := sqlkit.Unapplied(errDriver, advice)
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorIs(t, err, errDriver)
	assert.EqualError(t, err, "jq: store unavailable, nothing was applied: what to do: the driver's words")
	err = sqlkit.InDoubt(errDriver, advice)
	assert.ErrorIs(t, err, store.ErrInDoubt)
	assert.ErrorIs(t, err, errDriver)
	assert.EqualError(t, err, "jq: answer lost, the call may have been applied: what to do: the driver's words")
}

func TestBecauseNamesWhatBrokeTheCallOff(t *testing.T) {
	unavailable := fmt.Errorf("%w: %w", store.ErrUnavailable, errDriver)
	inDoubt := fmt.Errorf("%w: %w", store.ErrInDoubt, errDriver)
	named := fmt.Errorf("%w: %w", store.ErrUnavailable, context.Canceled)
	for name, c := range map[string]struct {
		ctx    context.Context
		closed chan struct{}
		err    error
		want   string
	}{
		"NothingDid":             {t.Context(), open, unavailable, unavailable.Error()},
		"Close":                  {t.Context(), shut, unavailable, store.ErrClosed.Error()},
		"CloseBeforeTheContext":  {ended(t), shut, unavailable, store.ErrClosed.Error()},
		"CloseLeavesDoubt":       {t.Context(), shut, inDoubt, inDoubt.Error()},
		"CloseLeavesAnswers":     {t.Context(), shut, store.ErrNotFound, store.ErrNotFound.Error()},
		"TheContext":             {ended(t), open, unavailable, unavailable.Error() + ": context canceled"},
		"TheContextInDoubt":      {ended(t), open, inDoubt, inDoubt.Error() + ": context canceled"},
		"TheContextNamedBefore":  {ended(t), open, named, named.Error()},
		"TheContextLeavesErrors": {ended(t), open, store.ErrNotFound, store.ErrNotFound.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			assert.EqualError(t, sqlkit.Because(c.ctx, c.closed, c.err), c.want)
		})
	}
	assert.NoError(t, sqlkit.Because(ended(t), shut, nil), "a call that has succeeded")
}

func TestNotOpenedSaysWhatToDoInOneLine(t *testing.T) {
	err := sqlkit.NotOpened("jobs.db", store.ErrUnavailable, fmt.Errorf("%w\nand more of them", errDriver), advice)
	assert.EqualError(t, err, "jq: store unavailable, nothing was applied: opening jobs.db: what to do: the driver's words; and more of them")
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorIs(t, err, errDriver)
	held := sqlkit.NotOpened("jobs.db", store.ErrUnavailable, fmt.Errorf("%w: process 7 holds the turn", store.ErrUnavailable), advice)
	assert.EqualError(t, held, "jq: store unavailable, nothing was applied: opening jobs.db: what to do: process 7 holds the turn", "said once")
	newer := sqlkit.NotOpened("jobs.db", store.ErrUnavailable, fmt.Errorf("%w (schema 2, program 1)", sqlkit.ErrNewer), advice)
	assert.ErrorIs(t, newer, sqlkit.ErrNewer)
	assert.NotContains(t, newer.Error(), "what to do", "advice for the driver's errors")
}
