// Package cost measures what a job costs its machine: the transactions, statements, CPU time, log and dead tuples of a Postgres
// server, and the CPU time and allocations of the processes that use it.
package cost

import (
	"cmp"
	"slices"
	"strings"
)

// A Kind is one thing that a job costs.
type Kind string

// The kinds.
const (
	Transactions Kind = "transactions"
	IDs          Kind = "transaction_ids" // of the transactions that took one
	Statements   Kind = "statements"
	Server       Kind = "server_cpu_us"   // all processes of the server, also those that have ended
	Process      Kind = "process_cpu_us"  // all processes that use the server
	Producer     Kind = "producer_cpu_us" // that of them which enqueues
	WAL          Kind = "wal_bytes"
	Dead         Kind = "dead_tuples" // deleted ones, and those that an update has replaced, without HOT updates
	HOT          Kind = "hot_updates" // their dead versions need no vacuum
	Allocations  Kind = "allocations"
	Allocated    Kind = "allocated_bytes"
)

// words are those that a title writes in its own way.
var words = strings.NewReplacer("_us", " µs", "cpu", "CPU", "wal", "WAL", "hot", "HOT", "_", " ")

// Title returns the kind for people.
func (k Kind) Title() string { return words.Replace(string(k)) }

// Kinds returns all kinds, in the order of tables.
func Kinds() []Kind {
	return []Kind{Transactions, IDs, Statements, Server, Process, Producer, WAL, Dead, HOT, Allocations, Allocated}
}

// Costs are the average costs of a job. Kinds that were not measured are absent.
type Costs map[Kind]float64

// minus returns the difference for the kinds in both.
func (c Costs) minus(before Costs) Costs {
	all := Costs{}
	for kind, value := range c {
		if was, measured := before[kind]; measured {
			all[kind] = value - was
		}
	}
	return all
}

// A Query is a statement that the server ran for the jobs.
type Query struct {
	Text  string  `json:"text"`
	Calls float64 `json:"calls"` // a job
}

// perJob divides the calls of each text by the jobs, and puts the frequent ones first.
func perJob(calls map[string]float64, jobs int64) []Query {
	var all []Query
	for text, n := range calls {
		all = append(all, Query{Text: text, Calls: n / float64(jobs)})
	}
	slices.SortFunc(all, func(a, b Query) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Text, b.Text))
	})
	return all
}

// longest is how much of a statement's text is kept, in bytes.
const longest = 400

// onOneLine returns the text without line breaks and comments' space, cut if it is long.
func onOneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
