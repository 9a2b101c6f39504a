package remote_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http/httptest"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/remote"
)

// serveJobs stands for jobq serve on another machine.
func serveJobs() (url string, stop func()) {
	store := jq.NewMemory(nil)
	api, err := httpapi.New(store, &httpapi.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(api)
	return server.URL, func() {
		_ = api.Close()
		server.Close()
		_ = store.Close()
	}
}

// A worker without access to the database runs jobs of a server.
func Example() {
	url, stop := serveJobs()
	defer stop()
	ctx, enough := context.WithCancel(context.Background())
	store, err := remote.Open(ctx, url, &remote.Options{Token: ""}) // a token that jobq token new has made
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := jq.NewClient(store, nil).Enqueue(ctx, greeting{Name: "Ada"}, nil); err != nil {
		log.Fatal(err)
	}

	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, g greeting) error {
		fmt.Println("Hello,", g.Name)
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
	// Output: Hello, Ada
}
