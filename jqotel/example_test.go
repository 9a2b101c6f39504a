package jqotel_test

import (
	"context"
	"fmt"
	"log"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqotel"
)

// The spans of an enqueueing and of the run that it leads to.
func Example() {
	ctx, enough := context.WithCancel(context.Background())
	spans := tracetest.NewInMemoryExporter() // in a program, one for a collector
	telemetry, err := jqotel.New(&jqotel.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	if err != nil {
		log.Fatal(err)
	}
	store := jq.NewMemory(nil)
	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{telemetry.Enqueue}})
	if _, err := client.Enqueue(ctx, welcome{Name: "Ada"}, nil); err != nil {
		log.Fatal(err)
	}

	var handlers jq.Handlers
	handlers.Use(telemetry.Handle)
	jq.Handle(&handlers, func(context.Context, *jq.Run, welcome) error {
		enough()
		return nil
	})
	server, err := jq.NewServer(store, &handlers, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}

	for _, span := range spans.GetSpans() {
		fmt.Println(span.SpanKind, span.Name, len(span.Links))
	}
	// Output:
	// producer send default 0
	// consumer process default 1
}
