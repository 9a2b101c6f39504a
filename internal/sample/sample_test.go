package sample_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/sample"
)

// A counter is a call that takes as long as the test says, and answers how often it was made.
type counter struct {
	takes time.Duration
	err   error
	calls int
}

func (c *counter) do(ctx context.Context) (int, error) {
	c.calls++
	select {
	case <-time.After(c.takes):
		return c.calls, c.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestNobodyAsksAndNothingIsCalled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := counter{takes: time.Second}
		s := sample.New(c.do, sample.Options{MaxAge: time.Second})
		pass(time.Hour)
		assert.Zero(t, c.calls)
		latest, good := s.Answers()
		assert.False(t, latest.Known() || good.Known())
		<-s.Ask()
		pass(time.Hour)
		assert.Equal(t, 1, c.calls)
		s.Close()
	})
}

func TestCallersShareACallAndItsAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := counter{takes: time.Second}
		s := sample.New(c.do, sample.Options{MaxAge: 5 * time.Second})
		began := time.Now()
		first, second := s.Ask(), s.Ask()
		<-first
		<-second
		_, good := s.Answers()
		assert.Equal(t, sample.Answer[int]{Value: 1, Began: began, Took: time.Second}, good)
		pass(5*time.Second - 1)
		<-s.Ask()
		assert.Equal(t, 1, c.calls, "a nanosecond before its age")
		pass(1)
		<-s.Ask()
		assert.Equal(t, 2, c.calls)
	})
}

func TestLongCallsRest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := counter{takes: time.Second}
		s := sample.New(c.do, sample.Options{MaxAge: time.Second, Rest: 9})
		for began := time.Now(); time.Since(began) < 100*time.Second; pass(time.Second / 2) {
			s.Ask()
		}
		s.Close()
		assert.Equal(t, 10, c.calls, "in a hundred seconds it has called for ten")
	})
}

func TestFailedCallKeepsTheAnswerBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := counter{}
		s := sample.New(c.do, sample.Options{})
		<-s.Ask()
		c.err = errors.New("odd")
		<-s.Ask()
		latest, good := s.Answers()
		assert.Equal(t, []any{c.err, 1}, []any{latest.Err, good.Value})
		c.err = nil
		<-s.Ask()
		latest, good = s.Answers()
		assert.Equal(t, latest, good)
		assert.Equal(t, 3, good.Value)
	})
}

func TestCallsEndAfterTheirLife(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := counter{takes: time.Hour}
		s := sample.New(c.do, sample.Options{Life: time.Minute})
		<-s.Ask()
		latest, good := s.Answers()
		assert.Equal(t, []any{context.DeadlineExceeded, time.Minute, false}, []any{latest.Err, latest.Took, good.Known()})
	})
}

func TestCloseEndsTheCall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := counter{takes: time.Hour}
		s := sample.New(c.do, sample.Options{})
		began := time.Now()
		asked := s.Ask()
		s.Close()
		<-asked
		assert.Zero(t, time.Since(began))
		s.Close()
	})
}

func TestWaitPrefersAnAnswerThatIsThere(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	there := make(chan struct{})
	assert.False(t, sample.Wait(ended, there))
	close(there)
	for range 100 {
		assert.True(t, sample.Wait(ended, there))
	}
}

func TestTimesAreThoseOfItsClock(t *testing.T) {
	mock := clock.NewMock()
	calls := 0
	s := sample.New(func(context.Context) (int, error) {
		calls++
		mock.Add(time.Second)
		return calls, nil
	}, sample.Options{Clock: mock, Rest: 9})
	<-s.Ask()
	latest, _ := s.Answers()
	assert.Equal(t, time.Second, latest.Took)
	mock.Add(9*time.Second - 1)
	<-s.Ask()
	assert.Equal(t, 1, calls)
	mock.Add(1)
	<-s.Ask()
	assert.Equal(t, 2, calls)
}

// A call that panics runs in a goroutine of the sampler: nobody else could stop the panic from ending the process.
func TestAPanicIsAnError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		calls := 0
		s := sample.New(func(context.Context) (int, error) {
			if calls++; calls == 1 {
				panic("broken")
			}
			return calls, nil
		}, sample.Options{})
		<-s.Ask()
		latest, good := s.Answers()
		assert.ErrorContains(t, latest.Err, "broken")
		assert.ErrorContains(t, latest.Err, "sample_test.go", "the stack says where")
		assert.False(t, good.Known())
		<-s.Ask()
		latest, _ = s.Answers()
		assert.NoError(t, latest.Err)
		assert.Equal(t, 2, latest.Value)
		s.Close()
	})
}
