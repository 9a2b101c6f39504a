package jqprom_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqprom"
)

func Example() {
	store := jq.NewMemory(nil)
	metrics := jqprom.New(store, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	client := jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{metrics.Enqueue}})
	if _, err := client.Enqueue(context.Background(), welcome{Name: "Ada"}, nil); err != nil {
		log.Fatal(err)
	}

	// A server is given the same metrics: jq.ServerOptions{Observer: metrics}, and then metrics.Watch(server).

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "jq_jobs{") || strings.HasPrefix(line, "jq_jobs_enqueued") {
			fmt.Print(line)
		}
	}
	// Output:
	// jq_jobs{queue="default",state="blocked"} 0
	// jq_jobs{queue="default",state="dead"} 0
	// jq_jobs{queue="default",state="in_flight"} 0
	// jq_jobs{queue="default",state="ready"} 1
	// jq_jobs{queue="default",state="retrying"} 0
	// jq_jobs_enqueued_total{kind="welcome",queue="default"} 1
}
