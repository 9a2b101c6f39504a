package wire_test

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// through encodes v, and decodes the text as another type.
func through[A any](t *testing.T, v A) A {
	t.Helper()
	text, err := wire.Marshal(v)
	require.NoError(t, err)
	var back A
	require.NoError(t, wire.Decode(text, &back), string(text))
	return back
}

// filled sets every field of a struct to a value that is not zero, so that the test notices a field that the wire format
// lacks.
func filled[A any](t *testing.T) A {
	t.Helper()
	var v A
	fill(t, reflect.ValueOf(&v).Elem())
	switch n := any(&v).(type) {
	case *store.NewJob:
		possible(n)
	case *store.Schedule:
		possible(&n.Job)
	}
	return v
}

// possible takes from a new job what no request has: a schedule, and waits that name a job twice.
func possible(n *store.NewJob) {
	n.Scheduled = nil
	n.After[0].Item, n.After[1].ID = 0, 0
	n.After[0].Group, n.After[1].Group = "", ""
	n.After = append(n.After, store.Wait{Group: "g", Any: true})
}

var aTime = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch into := v.Addr().Interface().(type) {
	case *time.Time:
		*into = aTime
		return
	case *[]byte:
		*into = []byte(`{"a": 1}`)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(store.Ready), reflect.ValueOf(int64(7)))
	case reflect.String:
		v.SetString("ready \u00fc\x01<&>")
	case reflect.Int, reflect.Int64:
		v.SetInt(math.MaxInt64)
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("no value for %v", v.Type())
	}
}

func TestNothingIsLostOnTheWire(t *testing.T) {
	job := filled[store.Job](t)
	assert.Equal(t, job, through(t, wire.JobOf(job)).Store())
	detail := filled[store.JobDetail](t)
	assert.Equal(t, detail, through(t, wire.DetailOf(detail)).Store())
	added := filled[[]store.Enqueued](t)
	assert.Equal(t, added, through(t, wire.Enqueued{Jobs: added}).Jobs)
	outcomes := filled[[]store.Outcome](t)
	assert.Equal(t, outcomes, through(t, wire.ResultsOf(outcomes)).Store())
	recovered := filled[[]store.Recovered](t)
	assert.Equal(t, recovered, through(t, wire.Recovered{Recovered: recovered}).Recovered)
	counts := filled[store.Counts](t)
	assert.Equal(t, counts, through(t, counts))
	queues := filled[[]store.Queue](t)
	assert.Equal(t, queues, through(t, wire.Queues{Queues: queues}).Queues)
	policy := filled[store.Policy](t)
	assert.Equal(t, policy, through(t, policy))
	keep := store.Policy{RetainDead: store.KeepForEver}
	assert.Equal(t, keep, through(t, keep))
	workers := filled[store.WorkerPage](t)
	assert.Equal(t, workers, through(t, workers))
	filter := filled[store.Filter](t)
	assert.Equal(t, filter, through(t, wire.FilterOf(filter)).Store())
	newJob := filled[store.NewJob](t)
	assert.Equal(t, newJob, through(t, wire.NewJobOf(newJob)).Store(store.NewJob{}))
	schedule := filled[store.Schedule](t)
	assert.Equal(t, schedule, through(t, wire.ScheduleOf(schedule)).Store(store.NewJob{}))
	schedules := store.SchedulePage{Now: aTime, Schedules: []store.Schedule{schedule}, Next: "next"}
	assert.Equal(t, schedules, through(t, wire.SchedulePageOf(schedules)).Store())
	firing := filled[store.Firing](t)
	assert.Equal(t, firing, through(t, wire.FiringOf(firing)).Store())
	fired := filled[[]store.Fired](t)
	assert.Equal(t, fired, through(t, wire.Fired{Fired: fired}).Fired)
	save := filled[store.Save](t)
	assert.Equal(t, save, through(t, wire.CheckpointOf(save)).Store())
	nack := filled[store.NAck](t)
	assert.Equal(t, nack, through(t, wire.NAckOf(nack)).Store())
	ack := filled[store.Ack](t)
	got, err := through(t, wire.AckOf(ack)).Store()
	require.NoError(t, err)
	assert.Equal(t, ack, got)
}

func TestRefusedResultIsRefusedOnTheOtherSide(t *testing.T) {
	for _, result := range [][]byte{make([]byte, store.MaxDocBytes+1), []byte("?"), []byte("\"\xff\"")} {
		ack := store.Ack{Lease: store.Lease{ID: 1, Token: 2}, Result: result}
		got, err := through(t, wire.AckOf(ack)).Store()
		require.NoError(t, err)
		require.Equal(t, ack.Lease, got.Lease)
		assert.Equal(t, ack.Refused(), got.Refused())
	}
	_, err := wire.Ack{ResultFault: "ugly"}.Store()
	require.ErrorIs(t, err, store.ErrInvalid)
}

func TestDefaultsAreForWhatIsLeftOut(t *testing.T) {
	defaults := store.NewJob{Queue: "default", Payload: []byte("null"), MaxRetries: 20, Backoff: store.Backoff{Base: time.Second, Cap: time.Hour, Jitter: 10}}
	var n wire.NewJob
	require.NoError(t, wire.Decode([]byte(`{"kind":"k"}`), &n))
	assert.Equal(t, store.NewJob{Queue: "default", Kind: "k", Payload: []byte("null"), MaxRetries: 20, Backoff: defaults.Backoff}, n.Store(defaults))
	zero := store.NewJob{Kind: "k", Payload: []byte("0")}
	assert.Equal(t, zero, through(t, wire.NewJobOf(zero)).Store(defaults), "a zero that was said is kept")
}

func TestErrorsComeBackAsThemselves(t *testing.T) {
	for _, want := range []error{
		store.ErrNotFound, store.ErrState, store.ErrDuplicate, store.ErrConflict, store.ErrStaleLease, store.ErrClosed, store.ErrUnavailable, store.ErrInDoubt, errors.ErrUnsupported,
	} {
		f := through(t, wire.FailOf(want))
		require.ErrorIs(t, f.Err(), want)
		assert.GreaterOrEqual(t, f.Status, 400)
	}
	require.ErrorIs(t, wire.FailOf(errors.New("odd")).Err(), store.ErrInDoubt, "who knows what was applied")
	for _, item := range []int{-1, 0, 7} {
		invalid := &store.InvalidError{Item: item, Field: "payload", Rule: "must be short"}
		var got *store.InvalidError
		require.ErrorAs(t, through(t, wire.FailOf(invalid)).Err(), &got)
		assert.Equal(t, invalid, got)
	}
	require.NoError(t, wire.Fail{Type: "about:blank", Status: 502}.Err(), "no answer of a store")
}
