package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// body returns a handler that decodes a body, calls do, which writes to the store, and sends its answer.
func body[Request, Answer any](do func(a *API, ctx context.Context, req Request) (Answer, error)) handler {
	return func(a *API, w *exchange, r *http.Request) error {
		req, err := decode[Request](w, r)
		if err != nil {
			return err
		}
		ctx, cancel := a.within(r.Context())
		defer cancel()
		answer, err := paced(ctx, a, w, func() (Answer, error) { return do(a, ctx, req) })
		if err != nil {
			return err
		}
		return a.answer(w, http.StatusOK, answer)
	}
}

// reading returns a handler that decodes a body and reads from the store.
func reading[Request, Answer any](do func(a *API, ctx context.Context, req Request) (Answer, error)) handler {
	return func(a *API, w *exchange, r *http.Request) error {
		req, err := decode[Request](w, r)
		if err != nil {
			return err
		}
		return a.show(w, r, func(ctx context.Context) (any, error) { return do(a, ctx, req) })
	}
}

// decode reads the body of a request that must have one.
func decode[Request any](w *exchange, r *http.Request) (req Request, err error) {
	if !isJSON(r) {
		return req, noJSON
	}
	text, err := readBody(w, r, longest(req))
	if err != nil {
		return req, err
	}
	return req, parse(w, r, text, &req)
}

// longest returns the maximum size of a request's body. Bodies with documents can be large.
func longest(req any) int64 {
	switch req.(type) {
	case wire.Enqueue, wire.Acks, wire.NAcks, wire.Checkpoints:
		return wire.MaxBody
	}
	return wire.MaxBrief
}

// bulky is the size of a body that takes milliseconds to parse. Those that are parsed at once leave processors to small calls.
const bulky = 256 << 10

func parse(w *exchange, r *http.Request, text []byte, into any) error {
	if len(text) > bulky {
		leave, err := w.wait(r.Context(), func(s *share) room { return s.parses })
		if err != nil {
			return err
		}
		defer leave()
	}
	return wire.Decode(text, into)
}

// decodeAny reads an optional body. An empty body counts as none, with or without a Content-Length.
func decodeAny[Request any](w *exchange, r *http.Request) (req Request, err error) {
	text, err := readBody(w, r, longest(req))
	if err != nil || len(text) == 0 {
		return req, err
	}
	if !isJSON(r) {
		return req, noJSON
	}
	return req, parse(w, r, text, &req)
}

// isJSON reports whether the Content-Type is JSON. A page of another site can not send that type without permission.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == wire.JSON
}

// forName returns a handler that calls do with the name in the path. It takes no body and sends no content.
func forName[Ability any](field string, do func(of Ability, ctx context.Context, name string) error) handler {
	return func(a *API, w *exchange, r *http.Request) error {
		ability, err := able[Ability](r.Context(), a)
		if err != nil {
			return err
		}
		if err := nothing(w, r); err != nil {
			return err
		}
		ctx, cancel := a.within(r.Context())
		defer cancel()
		if err := do(ability, ctx, r.PathValue("name")); err != nil {
			return named(err, field, "name")
		}
		return done(w)
	}
}

// nothing reads the body of a request that needs none. It accepts an empty object.
func nothing(w *exchange, r *http.Request) error {
	text, err := readBody(w, r, wire.MaxBrief)
	if err != nil || len(text) == 0 {
		return err
	}
	return parse(w, r, text, &struct{}{})
}

// readBody reserves memory as the body arrives, so that a body that is announced but not sent costs other clients nothing.
func readBody(w *exchange, r *http.Request, most int64) ([]byte, error) {
	tooLarge := &largeError{refuse("body", fmt.Sprintf("must have at most %d bytes", most))}
	if r.ContentLength > most {
		if r.Header.Get("Expect") != "" { // reading would tell the client to send the body
			return nil, tooLarge
		}
		return nil, discard(w, r, tooLarge)
	}
	body := http.MaxBytesReader(w, r.Body, most)
	var text []byte
	for size := firstRead; ; size *= 2 {
		if r.ContentLength >= 0 {
			size = min(size, int(r.ContentLength)+1) // one more byte, to see the end
		}
		if err := w.take(int64(size-cap(text)) * asRequest); err != nil {
			return nil, discard(w, r, err)
		}
		text = append(make([]byte, 0, size), text...)
		err := fillUp(&text, body)
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, discard(w, r, tooLarge)
		}
		return nil, refuse("body", "must arrive whole and in time")
	}
}

// fillUp reads until text is full. Unlike io.ReadFull, it distinguishes the end of a body from a broken one.
func fillUp(text *[]byte, from io.Reader) error {
	for len(*text) < cap(*text) {
		n, err := from.Read((*text)[len(*text):cap(*text)])
		*text = (*text)[:len(*text)+n]
		runtime.Gosched() // let other goroutines run: a fast body would delay small calls by 10 ms at a time
		if err != nil {
			return err
		}
	}
	return nil
}

// firstRead is the first buffer for a body: most bodies are smaller.
const firstRead = 16 << 10

// discard reads a refused body and throws it away, up to a limit: a client that is still writing would not read the answer.
func discard(w *exchange, r *http.Request, why error) error {
	w.end()
	_, _ = io.CopyN(&w.all.refused, r.Body, 2*wire.MaxBody) // an error means that the client has left
	return why
}

// number reads an id in a path, or a limit in a query. Each number has only one text.
func number(field, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, refuse(field, "must be a number")
	}
	return n, nil
}

// A jobQuery asks for a page of jobs.
type jobQuery struct {
	filter    store.Filter
	page      store.Page
	documents bool // whether the answer has payloads, checkpoints, progress and results
}

// query reads the query parameters of a listing of jobs.
func query(raw string) (jobQuery, error) {
	q := jobQuery{page: store.Page{Limit: 100}}
	f, waitsFor, documents := &q.filter, "", ""
	texts := map[string]*string{
		"queue": &f.Queue, "kind": &f.Kind, "tag": &f.Tag, "worker": &f.Worker, "unique_key": &f.UniqueKey, "group": &f.Group, "limit_key": &f.LimitKey,
		"waits_for": &waitsFor, "waits_for_group": &f.WaitsForGroup, "documents": &documents,
	}
	err := parameters(raw, texts, &f.States, &q.page)
	if err == nil && waitsFor != "" {
		if f.WaitsFor, err = number("waits_for", waitsFor); err == nil && f.WaitsFor < 1 {
			err = refuse("waits_for", "must be the id of a job")
		}
	}
	if err == nil && documents != "" && documents != "false" {
		err = refuse("documents", "must be false: leave it out for jobs with their documents")
	}
	q.documents = documents == ""
	return q, err
}

// workerQuery reads the query parameters of a listing of workers.
func workerQuery(raw string) (store.WorkerFilter, store.Page, error) {
	f, page := store.WorkerFilter{}, store.Page{Limit: 100}
	err := parameters(raw, map[string]*string{"name": &f.Name}, nil, &page)
	return f, page, err
}

// parameters reads query parameters: the call's own parameters into texts, the states if they are not nil, and cursor and limit of a
// page if it is not nil.
func parameters(raw string, texts map[string]*string, states *[]store.State, page *store.Page) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return refuse("query", "must be written as name=value, with & in between")
	}
	if page != nil {
		texts["cursor"] = &page.Cursor
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // in order, so that the same request always gets the same error
	for _, name := range names {
		if err := parameter(name, values[name], texts, states, page); err != nil {
			return err
		}
	}
	return nil
}

func parameter(name string, values []string, texts map[string]*string, states *[]store.State, page *store.Page) error {
	if name == "state" && states != nil {
		for _, v := range values {
			*states = append(*states, store.State(v))
		}
		return nil
	}
	if len(values) > 1 {
		return refuse(name, "must be given once")
	}
	if name == "limit" && page != nil {
		limit, err := number(name, values[0])
		page.Limit = int(limit)
		return err
	}
	into, known := texts[name]
	if !known {
		return refuse(name, "is not known here")
	}
	if values[0] == "" {
		return refuse(name, "must not be empty: leave it out")
	}
	*into = values[0]
	return nil
}

func limitOr(limit *int, otherwise int) int {
	if limit == nil {
		return otherwise
	}
	return *limit
}

func refuse(field, rule string) error { return &store.InvalidError{Item: -1, Field: field, Rule: rule} }

// A largeError says that a body is larger than its limit.
type largeError struct{ error }

func (e *largeError) Unwrap() error { return e.error }

// A sink discards what is written to it, at most sinkSpeed bytes a second. To decrypt refused bodies as fast as they come would take
// processors from other calls.
type sink struct {
	mu   sync.Mutex // guards free
	free time.Time  // when what was written before is over
}

const sinkSpeed = 16 << 20

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(len(p)) * time.Second / sinkSpeed)
	rest := s.free.Sub(now)
	s.mu.Unlock()
	<-time.After(rest)
	return len(p), nil
}
