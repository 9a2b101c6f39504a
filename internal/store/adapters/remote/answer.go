package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// The greatest sizes of answers, in bytes. A larger answer does not come from a jq server.
const (
	mostWords   = 64 << 10  // everything around the items; also a problem document
	mostOutcome = 8 << 10   // one outcome
	mostJob     = 16 << 20  // four documents, each as JSON and as text
	mostRow     = 256 << 10 // a job without its documents
	mostDocs    = 64 << 20  // all documents of a page, or of both lanes of a claim, each as JSON and as text
	mostHistory = 16 << 20  // a hundred attempts with their errors
	mostWorker  = 8 << 10   // a worker without the names of its queues
	mostQueues  = 10 << 20  // the names of the queues of a page of workers; each byte of a name may take ten bytes in JSON
	mostNames   = 1 << 30   // the names of queues, of which there can be any number
	mostGroup   = 4 << 10   // a group; each byte of its name may take ten bytes in JSON
	mostGraph   = 32 << 20  // nodes with names and a part of their errors, and their waits
	mostNothing = mostWords // an answer without content
	mostPayload = 8 << 20   // the payloads of a page of schedules, each as JSON and as text
	mostDetail  = mostJob + mostHistory
)

// mostJobs is the greatest size of an answer with limit jobs.
func mostJobs(limit int) int64 {
	return mostWords + min(int64(limit)*mostJob, int64(limit)*mostRow+mostDocs)
}

// mostWorkers is the greatest size of an answer with limit workers.
func mostWorkers(limit int) int64 { return mostWords + int64(limit)*mostWorker + mostQueues }

// mostSchedules is the greatest size of an answer with limit schedules.
func mostSchedules(limit int) int64 { return mostWords + int64(limit)*mostRow + mostPayload }

// mostGroups is the greatest size of an answer with limit groups.
func mostGroups(limit int) int64 { return mostWords + int64(limit)*mostGroup }

// decode reads an answer and checks it with valid. It ignores unknown fields, because a newer server may send them.
func decode[A any](resp *http.Response, most int64, into *A, valid func(A) error) error {
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		return failure(resp)
	}
	text, err := readAll(resp, most)
	if err != nil {
		return err
	}
	if !utf8.Valid(text) {
		return strange(resp, "not in UTF-8")
	}
	if err := json.Unmarshal(text, into); err != nil {
		return strange(resp, "not the JSON that was expected")
	}
	if err := valid(*into); err != nil {
		return strange(resp, err.Error())
	}
	return nil
}

// nothing reads an answer without content.
func nothing(resp *http.Response) error {
	if resp.StatusCode != http.StatusNoContent {
		return failure(resp)
	}
	_, err := readAll(resp, mostNothing)
	return err
}

func readAll(resp *http.Response, most int64) ([]byte, error) {
	var text bytes.Buffer
	if n := resp.ContentLength; n > 0 {
		text.Grow(int(min(n, most, 1<<20)) + bytes.MinRead)
	}
	n, err := text.ReadFrom(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, err
	case n > most:
		return nil, strange(resp, "longer than it can be")
	default:
		return text.Bytes(), nil
	}
}

func strange(resp *http.Response, wrong string) error {
	e := &stranger{status: resp.StatusCode, wrong: wrong}
	e.kind, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if to, err := url.Parse(resp.Header.Get("Location")); err == nil && resp.StatusCode/100 == 3 {
		e.to = to.Redacted()
	}
	return e
}

// inTheirWords replaces a field's name over HTTP by its name in the contract, if they differ.
func inTheirWords(err error) error {
	var invalid *store.InvalidError
	if errors.As(err, &invalid) && invalid.Field == "lease" {
		return &store.InvalidError{Item: invalid.Item, Field: "ttl", Rule: invalid.Rule}
	}
	return err
}

// How often a call that the server sent away is repeated, and the longest pause before a repeat.
const (
	comeBacks       = 3
	longestComeBack = 5 * time.Second
)

// sentAway is the error of a call that the server told to come back later.
type sentAway struct {
	error
	until time.Duration // from now on
}

func (e *sentAway) Unwrap() error { return e.error }

// comeBack adds to the error the time after which to try again, if the server names one.
func comeBack(resp *http.Response, err error) error {
	seconds, odd := strconv.Atoi(resp.Header.Get("Retry-After"))
	if odd != nil || seconds < 0 {
		return err
	}
	return &sentAway{err, min(time.Duration(seconds)*time.Second, longestComeBack)}
}

// failure translates an answer other than success: into the error of the store behind the server, or into an error that says
// that no jq server answered. Some statuses mean that the request was not let through, whether the server or a proxy sent them.
func failure(resp *http.Response) error {
	var f wire.Fail
	text, err := readAll(resp, mostWords)
	if err == nil {
		_ = json.Unmarshal(text, &f) // if the text is not a problem document, f.Type stays empty
	}
	if resp.StatusCode >= 400 {
		if err := f.Err(); errors.Is(err, store.ErrClosed) { // the server's store was closed, not this one
			return fmt.Errorf("%w: %w", store.ErrUnavailable, f)
		} else if f.Type == wire.Busy {
			return comeBack(resp, err)
		} else if err != nil {
			return inTheirWords(err)
		}
	}
	if f.Type == wire.NoSuchCall {
		return fmt.Errorf("%w: the server does not know this call, is it older than this program, or the URL wrong (HTTP %d)",
			errors.ErrUnsupported, resp.StatusCode)
	}
	means := store.ErrUnavailable
	if f.Type == wire.Unauthorized || f.Type == wire.TokenExpired || f.Type == wire.Forbidden { // the server itself says so; the refusal of a proxy may pass
		means = store.ErrDenied
	}
	unapplied := func(advice string) error {
		return fmt.Errorf("%w: %s (HTTP %d)", means, advice, resp.StatusCode)
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		if resp.Request != nil && resp.Request.Header.Get("Authorization") == "" {
			return unapplied("the server wants a token, give one (Options.Token, or JQ_TOKEN)")
		}
		if f.Type == wire.TokenExpired {
			return unapplied("the token has expired, give another (Options.Token, or JQ_TOKEN)")
		}
		return unapplied("the server does not know the token, give another (Options.Token, or JQ_TOKEN)")
	case http.StatusForbidden:
		if f.Type == wire.Forbidden {
			return unapplied(f.Error() + "; give another token (Options.Token, or JQ_TOKEN)")
		}
		return unapplied("something in between does not permit this")
	case http.StatusProxyAuthRequired:
		return unapplied("the proxy in between wants to know who asks")
	case http.StatusRequestEntityTooLarge:
		return unapplied("a proxy in between finds the call too large, raise its limit")
	case http.StatusTooManyRequests:
		return comeBack(resp, unapplied("there are too many requests, try again later"))
	}
	if err != nil {
		return err
	}
	return strange(resp, f.Title)
}

var statuses = map[store.Status]bool{
	store.StatusOK: true, store.StatusStale: true, store.StatusNotFound: true, store.StatusInvalid: true, store.StatusBusy: true,
	store.StatusFinished: true, store.StatusCancelled: true, store.StatusWrongState: true, store.StatusDuplicate: true,
}

// outcomesFor checks that there is one outcome for each of the jobs, in order.
func outcomesFor(ids []int64) func(wire.Results) error {
	return func(r wire.Results) error {
		if len(r.Results) != len(ids) {
			return fmt.Errorf("%d results for %d jobs", len(r.Results), len(ids))
		}
		for i, o := range r.Results {
			if o.ID != ids[i] || !statuses[o.Status] {
				return fmt.Errorf("result %d is for another job, or has no known status", i)
			}
		}
		return nil
	}
}

// outcomesUpTo checks that there are at most limit outcomes.
func outcomesUpTo(limit int) func(wire.Results) error {
	return func(r wire.Results) error {
		switch {
		case r.Results == nil:
			return errors.New("no results in it")
		case len(r.Results) > limit:
			return fmt.Errorf("%d results, the limit is %d", len(r.Results), limit)
		}
		for i, o := range r.Results {
			if o.ID <= 0 || !statuses[o.Status] {
				return fmt.Errorf("result %d has no job, or no known status", i)
			}
		}
		return nil
	}
}

// listed checks that the answer has the list, with at most limit items.
func listed[T any](items []T, limit int, what string) error {
	switch {
	case items == nil:
		return fmt.Errorf("no %s in it", what)
	case len(items) > limit:
		return fmt.Errorf("%d %s, the limit is %d", len(items), what, limit)
	default:
		return nil
	}
}
