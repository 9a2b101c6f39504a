package jqotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqotel"
	"github.com/seed-ed332417/jq/jqtest"
)

type welcome struct{ Name string }

func (welcome) Kind() string { return "welcome" }

// A bench is a store whose client and handlers are observed.
type bench struct {
	*testing.T
	store    *jqtest.Store
	client   *jq.Client
	handlers jq.Handlers
	tracer   trace.Tracer
	spans    *tracetest.InMemoryExporter
	metrics  *sdkmetric.ManualReader
}

func newBench(t *testing.T, child bool) *bench {
	t.Helper()
	b := &bench{T: t, store: jqtest.NewStore(t), spans: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.spans))
	telemetry, err := jqotel.New(&jqotel.Options{
		TracerProvider: traces, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.metrics)), ChildSpans: child,
	})
	require.NoError(t, err)
	b.tracer = traces.Tracer("test")
	b.client = jq.NewClient(b.store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{telemetry.Enqueue}})
	b.handlers.Use(telemetry.Handle)
	return b
}

// ended are the spans that have ended, by name.
func (b *bench) ended() map[string]tracetest.SpanStub {
	b.Helper()
	spans := map[string]tracetest.SpanStub{}
	for _, s := range b.spans.GetSpans() {
		require.NotContains(b, spans, s.Name)
		spans[s.Name] = s
	}
	return spans
}

// count is the sum of a counter, by its error type.
func (b *bench) count(name string) map[string]int64 {
	b.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(b, b.metrics.Collect(b.Context(), &all))
	sums := map[string]int64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					sums[failed(p.Attributes)] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					sums[failed(p.Attributes)] += int64(p.Count)
				}
			}
		}
	}
	return sums
}

func failed(set attribute.Set) string {
	v, _ := set.Value("error.type")
	return v.AsString()
}

func TestRunLinksToItsEnqueueing(t *testing.T) {
	b := newBench(t, false)
	var inside trace.SpanContext
	jq.Handle(&b.handlers, func(ctx context.Context, _ *jq.Run, _ welcome) error {
		inside = trace.SpanContextFromContext(ctx)
		return nil
	})
	ctx, caller := b.tracer.Start(t.Context(), "caller")
	_, err := b.client.Enqueue(ctx, welcome{"Ada"}, &jq.EnqueueOptions{Queue: "mail"})
	require.NoError(t, err)
	caller.End()
	jqtest.Drain(t, b.store, &b.handlers, nil)

	spans := b.ended()
	send, process := spans["send mail"], spans["process mail"]
	assert.Equal(t, trace.SpanKindProducer, send.SpanKind)
	assert.Equal(t, spans["caller"].SpanContext.SpanID(), send.Parent.SpanID())
	assert.Equal(t, trace.SpanKindConsumer, process.SpanKind)
	require.Len(t, process.Links, 1)
	assert.Equal(t, send.SpanContext.SpanID(), process.Links[0].SpanContext.SpanID())
	assert.NotEqual(t, send.SpanContext.TraceID(), process.SpanContext.TraceID(), "a run begins a trace of its own")
	assert.Equal(t, process.SpanContext.SpanID(), inside.SpanID(), "the handler stands inside its span")
	assert.Subset(t, process.Attributes, []attribute.KeyValue{
		attribute.String("messaging.system", "jq"), attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.destination.name", "mail"), attribute.String("messaging.message.id", "1"),
		attribute.String("jq.job.kind", "welcome"), attribute.Int("jq.job.attempt", 1), attribute.Int64("jq.job.token", 1),
	})
	assert.Contains(t, send.Attributes, attribute.String("messaging.message.id", "1"))
	assert.Equal(t, map[string]int64{"": 1}, b.count("messaging.client.sent.messages"))
	assert.Equal(t, map[string]int64{"": 1}, b.count("messaging.client.consumed.messages"))
	assert.Equal(t, map[string]int64{"": 1}, b.count("messaging.process.duration"))
}

func TestRunCanBeAChild(t *testing.T) {
	b := newBench(t, true)
	jq.Handle(&b.handlers, func(context.Context, *jq.Run, welcome) error { return nil })
	_, err := b.client.Enqueue(t.Context(), welcome{"Ada"}, nil)
	require.NoError(t, err)
	jqtest.Drain(t, b.store, &b.handlers, nil)
	spans := b.ended()
	assert.Equal(t, spans["send default"].SpanContext.SpanID(), spans["process default"].Parent.SpanID())
	assert.Equal(t, spans["send default"].SpanContext.TraceID(), spans["process default"].SpanContext.TraceID())
	assert.Empty(t, spans["process default"].Links)
}

func TestFailuresAreMarked(t *testing.T) {
	for name, c := range map[string]struct {
		handle func() error
		label  string
		text   string
	}{
		"error":     {func() error { return errors.New("mail server away") }, "_OTHER", "mail server away"},
		"panic":     {func() error { panic("oops") }, "panic", "the handler panicked"},
		"cancelled": {func() error { return context.Canceled }, "cancelled", "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, false)
			jq.Handle(&b.handlers, func(context.Context, *jq.Run, welcome) error { return c.handle() })
			_, err := b.client.Enqueue(t.Context(), welcome{"Ada"}, &jq.EnqueueOptions{MaxRetries: new(0)})
			require.NoError(t, err)
			ran := jqtest.Drain(t, b.store, &b.handlers, nil)
			assert.Equal(t, jq.Dead, ran[0].After.Phase(), "the job fails as it would unobserved")
			span := b.ended()["process default"]
			assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: c.text}, span.Status)
			assert.Contains(t, span.Attributes, attribute.String("error.type", c.label))
			assert.Equal(t, map[string]int64{c.label: 1}, b.count("messaging.client.consumed.messages"))
		})
	}
}

func TestSnoozeIsNoFailure(t *testing.T) {
	b := newBench(t, false)
	jq.Handle(&b.handlers, func(_ context.Context, run *jq.Run, _ welcome) error {
		if run.Attempts == 1 {
			return jq.Snooze(time.Hour)
		}
		return nil
	})
	_, err := b.client.Enqueue(t.Context(), welcome{"Ada"}, nil)
	require.NoError(t, err)
	jqtest.Drain(t, b.store, &b.handlers, nil)
	assert.Equal(t, map[string]int64{"": 2}, b.count("messaging.client.consumed.messages"))
}

func TestRefusedEnqueueingIsMarked(t *testing.T) {
	b := newBench(t, false)
	_, err := b.client.Enqueue(t.Context(), jq.Raw{Name: "k", Document: json.RawMessage("{")}, nil)
	require.ErrorIs(t, err, jq.ErrInvalid)
	assert.Equal(t, codes.Error, b.ended()["send default"].Status.Code)
	assert.Equal(t, map[string]int64{"invalid": 1}, b.count("messaging.client.sent.messages"))
}

func TestManyJobsAreOneSending(t *testing.T) {
	b := newBench(t, false)
	_, err := b.client.EnqueueMany(t.Context(), []jq.Item{
		{Payload: welcome{"Ada"}}, {Payload: welcome{"Grace"}, Options: &jq.EnqueueOptions{Queue: "mail", Trace: "of its own"}},
	}, nil)
	require.NoError(t, err)
	span := b.ended()["send"]
	assert.Contains(t, span.Attributes, attribute.Int("messaging.batch.message_count", 2))
	jobs := jqtest.RequireEnqueued(t, b.store, jqtest.Want{Times: 2})
	assert.Contains(t, jobs[0].Trace, span.SpanContext.TraceID().String())
	assert.Equal(t, "of its own", jobs[1].Trace)
	assert.Equal(t, map[string]int64{"": 2}, b.count("messaging.client.sent.messages"))
}

func TestMalformedTraceIsIgnored(t *testing.T) {
	for _, child := range []bool{false, true} {
		b := newBench(t, child)
		jq.Handle(&b.handlers, func(context.Context, *jq.Run, welcome) error { return nil })
		_, err := b.client.Enqueue(t.Context(), welcome{"Ada"}, &jq.EnqueueOptions{Trace: "00-zz-zz-01"})
		require.NoError(t, err)
		jqtest.Drain(t, b.store, &b.handlers, nil)
		span := b.ended()["process default"]
		assert.Empty(t, span.Links)
		assert.False(t, span.Parent.IsValid())
	}
}
