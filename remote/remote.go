// Package remote opens the job store of a jq server over HTTP. Use it in programs that are far from the database, or that must
// not have access to it.
//
//	s, err := remote.Open(ctx, "https://jobs.example.org", &remote.Options{Token: token})
//
// The store is as durable as the server's own store, and has the same abilities, except callers' transactions: those need a
// connection to the database.
package remote

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store/adapters/remote"
)

// A Store keeps jobs in a jq server. It is a jq.Store.
//
// Its methods beyond the contract:
//
//	// GraphOfGroup returns the graph around a group, which the server reads.
//	func (*Store) GraphOfGroup(ctx context.Context, name string) (graph.Graph, error)
//	// GraphOfJob returns the graph around a job, which the server reads.
//	func (*Store) GraphOfJob(ctx context.Context, id int64) (graph.Graph, error)
//	// AwaitEnd returns the job once it has ended, or as it is after 30 seconds.
//	func (*Store) AwaitEnd(ctx context.Context, id int64) (contract.JobDetail, error)
//	// Redacted reports whether the server has left documents out of jobs or schedules, because the token's role
//	// may not see them.
//	func (*Store) Redacted() bool
//	// WaitedFor returns a page of the jobs that a job in flight has waited for, by a call that its holder may
//	// make.
//	func (*Store) WaitedFor(ctx context.Context, req waited.Request) (waited.Page, error)
type Store = remote.Store

// Options configures Open. Zero fields mean the default.
//
// Its fields:
//
//	// Token identifies the caller to the server. A server that is configured without tokens needs none.
//	Token string
//
//	// Timeout ends a request if the server does not answer in this time, or stops in the middle of its answer: by default 10
//	// seconds. It should be well below the time of leases. An Enqueue may take several requests.
//	Timeout time.Duration
//
//	// TLS has the root certificates to trust, and the certificate to present: by default the system's roots, and no
//	// certificate. It configures the store's own transport, so leave it out if you set Transport. The version is never below
//	// TLS 1.2.
//	TLS *tls.Config
//
//	// Transport makes the requests. It must not retry requests by itself. The default has its own connections, uses the proxy
//	// from the environment, and speaks HTTP/1.1 over TLS 1.2 or later.
//	Transport http.RoundTripper
//
//	// Logger gets a line when wake-ups stop and when they resume, and a warning if the token is sent without encryption: by
//	// default slog.Default().
//	Logger *slog.Logger
//
//	// Clock measures time-outs and pauses: by default the clock of the process. The time of jobs is the server's.
//	Clock clock.Clock
type Options = remote.Options

// Open connects to the jq server at the URL, and fails if the server does not answer. The URL is like http://127.0.0.1:7070,
// https://example.org/jq or, for a Unix socket, unix:/run/jq.sock. Put a token into the options, not into the URL. Options may
// be nil.
func Open(ctx context.Context, baseURL string, options *Options) (*Store, error) {
	return remote.Open(ctx, baseURL, options)
}
