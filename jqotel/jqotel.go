// Package jqotel records OpenTelemetry traces and metrics of jobs, by the semantic conventions for messaging.
//
//	telemetry, err := jqotel.New(nil)
//	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{telemetry.Enqueue}})
//	handlers.Use(telemetry.Handle)
//
// Each Enqueue is a span. The context of that span is stored with each of its jobs, and the span of each run links to it. A run
// starts its own trace, because it may start days later, and more than once. With [Options].ChildSpans, the span of a run is a
// child of the Enqueue's span instead.
package jqotel

import (
	"cmp"
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

// Options configures New. Zero fields mean the default.
type Options struct {
	// TracerProvider and MeterProvider default to the global ones of package otel.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// ChildSpans makes the span of each run a child of the span that enqueued its job. By default, the span of a run starts its
	// own trace and links to that span.
	ChildSpans bool
}

// Telemetry has a middleware for clients, Enqueue, and a middleware for handlers, Handle. Give the one to [jq.ClientOptions], and the other to
// [jq.Handlers.Use].
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
	o := *cmp.Or(options, &Options{})
	o.TracerProvider = cmp.Or(o.TracerProvider, otel.GetTracerProvider())
	o.MeterProvider = cmp.Or(o.MeterProvider, otel.GetMeterProvider())
	meter := o.MeterProvider.Meter(scope)
	t := &Telemetry{tracer: o.TracerProvider.Tracer(scope), child: o.ChildSpans}
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

// The attribute names of the messaging conventions, and of jq.
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

// Enqueue makes a span of each enqueueing, and stores its context in the jobs that have no trace yet.
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

// traced returns a copy of the request in which every job has a trace: its own, or the context of the current span.
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

// Handle is the middleware for handlers. It makes a span for each run and puts it into the handler's context.
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
			if !returned { // the handler panicked, and the panic continues
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

// enqueueing returns the context of the span that enqueued the job. It is invalid if the job has none, or a malformed one.
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

// fails records the error in the span, and returns it as a label with few possible values.
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
