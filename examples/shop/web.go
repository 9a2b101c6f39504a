package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-ed332417/jq"
)

// A shop takes orders.
type shop struct {
	client *jq.Client
	orders *table
}

func (s *shop) routes(ready func() error, metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.postOrder)
	mux.HandleFunc("GET /orders/{id}", s.getOrder)
	mux.Handle("POST /bank/charges", testBank())
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {}) // the process answers
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}

var (
	prices   = map[string]int64{"teapot": 2500, "cup": 600} // in cents
	customer = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// postOrder answers 201 to a new order, and 200 to a double click.
func (s *shop) postOrder(w http.ResponseWriter, r *http.Request) {
	var in struct{ Customer, Item, Card string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	cents, sells := prices[in.Item]
	switch {
	case !customer.MatchString(in.Customer):
		http.Error(w, "customer: want 1 to 32 of a to z, 0 to 9 and -", http.StatusUnprocessableEntity)
		return
	case !sells:
		http.Error(w, fmt.Sprintf("item: the shop does not sell %q", in.Item), http.StatusUnprocessableEntity)
		return
	}
	o, twice, err := s.place(r.Context(), order{Customer: in.Customer, Item: in.Item, Cents: cents, State: placed}, in.Card)
	switch {
	case err != nil:
		fail(w, r, err)
	case twice:
		answer(w, http.StatusOK, o)
	default:
		answer(w, http.StatusCreated, o)
	}
}

func (s *shop) getOrder(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	o, err := s.orders.get(r.Context(), id)
	if err != nil {
		fail(w, r, err)
		return
	}
	answer(w, http.StatusOK, o)
}

// fail answers with an error. It is safe to repeat an order, so a client may do so after each 503.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, sql.ErrNoRows) {
		http.NotFound(w, r)
		return
	}
	slog.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	http.Error(w, "please try again", http.StatusServiceUnavailable)
}

func answer(w http.ResponseWriter, status int, o order) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(o) // a client that is gone gets no answer
}
