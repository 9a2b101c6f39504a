// Package jqotel shows jobs to OpenTelemetry, by its conventions for messaging.
//
//	telemetry, err := jqotel.New(nil)
//	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{telemetry.Enqueue}})
//	handlers.Use(telemetry.Handle)
//
// An enqueueing is a span of its own; its context travels with each job, and the span of each run links to it. A run begins a
// trace of its own, because it may begin days later, and more than once; [Options] can make it a child instead.
package jqotel

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-ed332417/jq"
)

const scope = "github.com/seed-ed332417/jq/jqotel"

// Options are what can be chosen; the zero value of each field means its default.
type Options struct {
	// TracerProvider and MeterProvider are by default those of package otel.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Child makes the span of a run a child of the enqueueing's span. Default: a span that links to it.
	Child bool
}

// Telemetry is a pair of middlewares.
type Telemetry struct {
	tracer trace.Tracer
	child  bool

	sent     metric.Int64Counter
	consumed metric.Int64Counter
	sending  metric.Float64Histogram
	process  metric.Float64Histogram
}

// New returns the middlewares. Options may be nil.
func New(options *Options) (*Telemetry, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	meter := o.MeterProvider.Meter(scope)
	t := &Telemetry{tracer: o.TracerProvider.Tracer(scope), child: o.Child}
	var errs [4]error
	t.sent, errs[0] = meter.Int64Counter("messaging.client.sent.messages",
		metric.WithUnit("{message}"), metric.WithDescription("Jobs that were enqueued, or could not be."))
	t.consumed, errs[1] = meter.Int64Counter("messaging.client.consumed.messages",
		metric.WithUnit("{message}"), metric.WithDescription("Jobs that were given to a handler."))
	t.sending, errs[2] = meter.Float64Histogram("messaging.client.operation.duration",
		metric.WithUnit("s"), metric.WithDescription("How long an enqueueing took."))
	t.process, errs[3] = meter.Float64Histogram("messaging.process.duration",
		metric.WithUnit("s"), metric.WithDescription("How long handlers ran."))
	return t, errors.Join(errs[:]...)
}

// What follows are the names of the conventions.
var (
	system = attribute.String("messaging.system", "jq")

	destination = attribute.Key("messaging.destination.name")
	operation   = attribute.Key("messaging.operation.name")
	kindOfOp    = attribute.Key("messaging.operation.type")
	messageID   = attribute.Key("messaging.message.id")
	batchCount  = attribute.Key("messaging.batch.message_count")
	errorType   = attribute.Key("error.type")

	jobKind    = attribute.Key("jq.job.kind")
	jobAttempt = attribute.Key("jq.job.attempt")
	jobToken   = attribute.Key("jq.job.token")
)

// Enqueue makes a span of each enqueueing, and writes its context into the jobs that have none.
func (t *Telemetry) Enqueue(next jq.EnqueueFunc) jq.EnqueueFunc {
	return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
		began := time.Now()
		name, attributes := "send", []attribute.KeyValue{system, operation.String("send"), kindOfOp.String("send")}
		if queue, one := onlyQueue(req.Jobs); one {
			name += " " + queue
			attributes = append(attributes, destination.String(queue))
		}
		ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...),
			trace.WithAttributes(batchCount.Int(len(req.Jobs))))
		defer span.End()
		added, err := next(ctx, traced(ctx, req))
		if err != nil {
			attributes = append(attributes, fails(span, err))
		} else if len(added) == 1 {
			span.SetAttributes(messageID.String(strconv.FormatInt(added[0].ID, 10)))
		}
		set := metric.WithAttributes(attributes...)
		t.sent.Add(ctx, int64(len(req.Jobs)), set)
		t.sending.Record(ctx, time.Since(began).Seconds(), set)
		return added, err
	}
}

func onlyQueue(jobs []jq.NewJob) (string, bool) {
	for _, j := range jobs {
		if j.Queue != jobs[0].Queue {
			return "", false
		}
	}
	if len(jobs) == 0 {
		return "", false
	}
	return jobs[0].Queue, true
}

// traced is the request with the context of its span in each job. The caller's jobs stay as they are.
func traced(ctx context.Context, req jq.EnqueueRequest) jq.EnqueueRequest {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	parent := carrier.Get("traceparent")
	jobs := make([]jq.NewJob, len(req.Jobs))
	for i, j := range req.Jobs {
		if j.Trace == "" {
			j.Trace = parent
		}
		jobs[i] = j
	}
	req.Jobs = jobs
	return req
}

// Handle makes a span of each run, and puts it into the handler's context.
func (t *Telemetry) Handle(next jq.HandlerFunc) jq.HandlerFunc {
	return func(ctx context.Context, run *jq.Run) (err error) {
		began := time.Now()
		attributes := []attribute.KeyValue{
			system, operation.String("process"), kindOfOp.String("process"), destination.String(run.Queue), jobKind.String(run.Kind),
		}
		ctx, span := t.tracer.Start(t.parent(ctx, run), "process "+run.Queue, append(t.links(run),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...),
			trace.WithAttributes(messageID.String(strconv.FormatInt(run.ID, 10)), jobAttempt.Int(run.Attempts), jobToken.Int64(run.Token)))...)
		returned := false
		defer func() {
			if !returned { // a panic, which goes on
				err = errPanic
			}
			if err != nil && !jq.IsSnooze(err) {
				attributes = append(attributes, fails(span, err))
			}
			set := metric.WithAttributes(attributes...)
			t.consumed.Add(ctx, 1, set)
			t.process.Record(ctx, time.Since(began).Seconds(), set)
			span.End()
		}()
		err = next(ctx, run)
		returned = true
		return err
	}
}

var errPanic = errors.New("the handler panicked")

// enqueueing is the context of the span that has enqueued the job, if it travels with it and is sound.
func enqueueing(run *jq.Run) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": run.Trace}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

func (t *Telemetry) parent(ctx context.Context, run *jq.Run) context.Context {
	if enqueued := enqueueing(run); t.child && enqueued.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, enqueued)
	}
	return ctx
}

func (t *Telemetry) links(run *jq.Run) []trace.SpanStartOption {
	if t.child {
		return nil
	}
	options := []trace.SpanStartOption{trace.WithNewRoot()}
	if enqueued := enqueueing(run); enqueued.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: enqueued}))
	}
	return options
}

// fails marks the span, and is the error as a label: one of few words.
func fails(span trace.Span, err error) attribute.KeyValue {
	label := errorType.String(labelOf(err))
	span.SetStatus(codes.Error, err.Error())
	span.RecordError(err)
	span.SetAttributes(label)
	return label
}

func labelOf(err error) string {
	for _, known := range []struct {
		err   error
		label string
	}{
		{jq.ErrInvalid, "invalid"},
		{jq.ErrUnavailable, "unavailable"},
		{jq.ErrDenied, "denied"},
		{jq.ErrInDoubt, "in_doubt"},
		{errPanic, "panic"},
		{context.Canceled, "cancelled"},
		{context.DeadlineExceeded, "timeout"},
	} {
		if errors.Is(err, known.err) {
			return known.label
		}
	}
	return "_OTHER"
}
