// Package waited reads the jobs that a job in flight has waited for, on any store and through a server.
package waited

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Request asks for jobs that a job in flight has waited for. The lease proves that its holder asks.
type Request struct {
	store.Lease
	Groups bool // asks for the jobs of its groups, in place of those that it named by their ids
	store.Page
}

// A Page is a page of these jobs, with all waits of the job that has waited.
type Page struct {
	Waits []store.Waiting
	store.JobPage
}

// A reader is a store that reads these jobs in its own way: through a server, or for a token that may see only some of them.
type reader interface {
	WaitedFor(ctx context.Context, req Request) (Page, error)
}

// Jobs returns a page of the jobs that a job in flight has waited for, without their tokens, because nobody needs these to read a
// result. The error is ErrStaleLease if the lease was lost or has ended, and ErrNotFound if the job no longer exists.
func Jobs(ctx context.Context, s store.Store, req Request) (Page, error) {
	if own, ok := s.(reader); ok {
		return own.WaitedFor(ctx, req)
	}
	if err := req.Check(); err != nil {
		return Page{}, err
	}
	job, err := s.Get(ctx, req.ID)
	if err != nil {
		return Page{}, err
	}
	return req.Read(ctx, s, job)
}

// Read reads the page from the store, given the job as it is now.
func (r Request) Read(ctx context.Context, s store.Store, job store.JobDetail) (Page, error) {
	if job.State != store.InFlight || job.Token != r.Token {
		return Page{}, store.ErrStaleLease
	}
	answer := Page{Waits: job.Waits}
	filters := r.filters(job.Waits)
	at, cursor, err := r.place(len(filters))
	if err != nil || len(filters) == 0 {
		return answer, err
	}
	answer.JobPage, err = s.List(ctx, filters[at], store.Page{Limit: r.Limit, Cursor: cursor})
	for i := range answer.Jobs {
		answer.Jobs[i].Token = 0
	}
	switch {
	case answer.Next != "":
		answer.Next = placeCursor(at, answer.Next)
	case at+1 < len(filters):
		answer.Next = placeCursor(at+1, "")
	}
	return answer, err
}

// filters select the jobs, one listing after the other.
func (r Request) filters(waits []store.Waiting) (filters []store.Filter) {
	var ids []int64
	seen := map[string]bool{}
	for _, w := range waits {
		switch {
		case w.Group == "":
			ids = append(ids, w.ID)
		case r.Groups && !seen[w.Group]:
			seen[w.Group] = true
			filters = append(filters, store.Filter{Group: w.Group})
		}
	}
	if !r.Groups && len(ids) > 0 {
		filters = []store.Filter{{IDs: ids}}
	}
	return filters
}

// placeCursor names a place in one of the listings. A dot is in no cursor of a listing.
func placeCursor(listing int, cursor string) string { return fmt.Sprintf("%d.%s", listing, cursor) }

// place reads such a cursor.
func (r Request) place(listings int) (listing int, cursor string, err error) {
	if r.Cursor == "" {
		return 0, "", nil
	}
	number, cursor, _ := strings.Cut(r.Cursor, ".")
	listing, err = strconv.Atoi(number)
	if err != nil || listing < 0 || listing >= listings || placeCursor(listing, cursor) != r.Cursor {
		return 0, "", &store.InvalidError{Item: -1, Field: "cursor", Rule: "must come from the page before, of the same job"}
	}
	return listing, cursor, nil
}
