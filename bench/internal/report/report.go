// Package report presents the results: as a table, a plot, and a document.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/rounds"
	"github.com/seed-ed332417/jq/bench/internal/site"
)

// A Report is all rounds, and the circumstances under which they ran.
type Report struct {
	Date     string          `json:"date"`
	Machine  Machine         `json:"machine"`
	Servers  string          `json:"servers"` // their settings
	Rounds   int             `json:"rounds"`
	Jobs     int             `json:"jobs"`
	Duration string          `json:"duration"`
	Cut      bool            `json:"cut,omitempty"` // it was interrupted during its last round
	Peers    []Peer          `json:"peers"`
	Results  []rounds.Result `json:"results"`
}

// A Peer is what readers must know to compare.
type Peer struct {
	Name     string `json:"name"`
	Store    string `json:"store"`
	Version  string `json:"version,omitempty"`
	Handlers int    `json:"handlers"`
	Settings string `json:"settings"`
	Keeps    bool   `json:"keeps"`
}

// ID returns the peer's name in results.
func (p Peer) ID() string { return p.Name + "-" + p.Store }

// New makes a report of the results.
func New(o rounds.Options, results []rounds.Result) *Report {
	r := &Report{
		Date: time.Now().UTC().Format(time.DateOnly), Machine: ThisMachine(), Servers: site.Settings,
		Rounds: o.Rounds, Jobs: o.Jobs, Duration: o.Duration.String(), Results: results,
	}
	for _, p := range o.Peers {
		if !slices.ContainsFunc(results, func(one rounds.Result) bool { return one.Peer == p.ID() }) {
			continue // it could not be measured here
		}
		if o.Handlers > 0 {
			p.Handlers = o.Handlers
		}
		r.Peers = append(r.Peers, Peer{p.Name, p.Store, p.Version, p.Handlers, p.Settings, p.Keeps})
	}
	return r
}

// Read reads a report that Write has written.
func Read(path string) (*Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s is no report of bench: %w", path, err)
	}
	return r, nil
}

// Write writes the report as JSON.
func (r *Report) Write(path string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// Failed returns the results that do not count.
func (r *Report) Failed() []rounds.Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(one rounds.Result) bool { return one.Error == "" })
}

// stores returns the stores that occur, in a fixed order.
func (r *Report) stores() []string {
	return slices.DeleteFunc([]string{peer.Postgres, peer.SQLite, peer.Redis, peer.Memory}, func(store string) bool { return len(r.on(store)) == 0 })
}

// on returns the peers on the store: jq first, the limit last.
func (r *Report) on(store string) []Peer {
	rank := func(p Peer) int {
		switch p.Name {
		case jq:
			return 0
		case limit:
			return 2
		}
		return 1
	}
	peers := slices.DeleteFunc(slices.Clone(r.Peers), func(p Peer) bool { return p.Store != store })
	slices.SortStableFunc(peers, func(a, b Peer) int { return rank(a) - rank(b) })
	return peers
}

const jq, limit = "jq", "limit"
