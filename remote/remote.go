// Package remote opens the job store of a jq server, over HTTP: for programs that are far from the database, or are not to know
// it.
//
//	s, err := remote.Open(ctx, "https://jobs.example.org", &remote.Options{Token: token})
//
// The store is as durable as that of the server. It has every ability but callers' transactions, which do not travel; of the
// others it has those that the server's store has.
package remote

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store/adapters/remote"
)

// A Store keeps jobs in a jq server. It is a jq.Store.
type Store = remote.Store

// Options are what can be chosen; nil means every default.
type Options = remote.Options

// Open returns the store of the jq server at the URL, such as http://127.0.0.1:7070, https://example.org/jq or, for a Unix
// socket, unix:/run/jq.sock, after asking it whether it is there. A token belongs into the options, not into the URL.
func Open(ctx context.Context, baseURL string, options *Options) (*Store, error) {
	return remote.Open(ctx, baseURL, options)
}
