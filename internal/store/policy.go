package store

import (
	"cmp"
	"fmt"
	"time"
)

// A Policy holds the settings of one queue. A zero field is not set: its default applies. Compare two policies with ==.
type Policy struct {
	RetainSucceeded time.Duration `json:"retain_succeeded,omitempty"` // how long succeeded jobs are kept; by default DefaultRetainSucceeded
	RetainCancelled time.Duration `json:"retain_cancelled,omitempty"` // how long cancelled jobs are kept; by default DefaultRetainCancelled
	RetainDead      time.Duration `json:"retain_dead,omitempty"`      // how long dead jobs are kept; by default DefaultRetainDead

	MaxInFlight int `json:"max_in_flight,omitempty"` // how many jobs may be in flight at once; by default any number
	MaxPerKey   int `json:"max_per_key,omitempty"`   // how many jobs with the same limit key may be in flight at once; by default any number

	Fair    bool `json:"fair,omitempty"`    // limit keys take turns; by default jobs are claimed in the order of their due times
	Ordered bool `json:"ordered,omitempty"` // jobs with the same limit key are claimed one at a time, in the order of their ids

	Rate Rate `json:"rate,omitzero"` // how many jobs may be claimed in a span of time; by default any number

	Owner    string `json:"owner,omitempty"`    // the program that has declared the policy, if one has
	Declared int64  `json:"declared,omitempty"` // the version of that declaration

	Version int64 `json:"version"` // 0 if the policy was never set; grows by one with each change
}

// KeepForEver is the retention of jobs that stay until somebody deletes them. It is a multiple of Resolution, so that a store
// can keep it like any other duration.
const KeepForEver = -Resolution

// The retentions of a queue whose policy does not set them, and the shortest retention that a policy can set.
const (
	DefaultRetainSucceeded = 24 * time.Hour
	DefaultRetainCancelled = 7 * 24 * time.Hour
	DefaultRetainDead      = KeepForEver

	MinRetention = time.Hour
)

// The greatest limits that a policy can set.
const (
	MaxLimit    = 10_000 // MaxInFlight
	MaxKeyLimit = 1_000  // MaxPerKey
)

// Sets reports whether the policy sets something. Who has declared it, and its version, are no settings.
func (p Policy) Sets() bool {
	return p != Policy{Owner: p.Owner, Declared: p.Declared, Version: p.Version}
}

// Retention returns how long jobs in a terminal state are kept, by the policy or by default. Other jobs are kept for ever.
func (p Policy) Retention(state State) time.Duration {
	switch state {
	case Succeeded:
		return cmp.Or(p.RetainSucceeded, DefaultRetainSucceeded)
	case Cancelled:
		return cmp.Or(p.RetainCancelled, DefaultRetainCancelled)
	case Dead:
		return cmp.Or(p.RetainDead, DefaultRetainDead)
	default:
		return KeepForEver
	}
}

// Check returns an [*InvalidError] if the policy breaks a limit.
func (p Policy) Check() error {
	if p.Version < 0 {
		return refuse("version", "must be that of the policy to replace, or 0 where none was set")
	}
	return asError(firstError(
		checkRetention("retain_succeeded", p.RetainSucceeded),
		checkRetention("retain_cancelled", p.RetainCancelled),
		checkRetention("retain_dead", p.RetainDead),
		checkRange("max_in_flight", p.MaxInFlight, 0, MaxLimit),
		checkRange("max_per_key", p.MaxPerKey, 0, MaxKeyLimit),
		p.Rate.check(),
		checkName("owner", p.Owner, optional),
		checkNumber("declared", p.Declared),
	))
}

// Limited reports whether the policy changes which jobs claims take.
func (p Policy) Limited() bool { return p.ByKey() || p.MaxInFlight > 0 || p.Rate.N > 0 }

// ByKey reports whether claims must find jobs by their limit keys.
func (p Policy) ByKey() bool { return p.KeyLimit() > 0 || p.Fair }

// KeyLimit returns how many jobs with the same limit key may be in flight at once, or 0 for any number.
func (p Policy) KeyLimit() int {
	if p.Ordered {
		return 1
	}
	return p.MaxPerKey
}

// Room returns how many of limit jobs a claim may take, if so many jobs of the queue are in flight.
func (p Policy) Room(limit, inFlight int) int { return room(limit, p.MaxInFlight, inFlight) }

// room returns how many of limit jobs a claim may take under a limit of which so much is taken. A limit of zero is none.
func room(limit, most, taken int) int {
	if most == 0 {
		return limit
	}
	return max(0, min(limit, most-taken))
}

func checkRetention(field string, d time.Duration) *InvalidError {
	if d != 0 && d != KeepForEver && (d < MinRetention || d > MaxDuration) {
		return refuse(field, fmt.Sprintf("must be %v to %v, or for ever", MinRetention, MaxDuration))
	}
	return nil
}

// Replace is SetPolicy for a queue whose policy is p: it returns the queue's new policy, or ErrConflict. The caller must have
// checked the policy by.
func (p Policy) Replace(by Policy) (Policy, error) {
	next := Policy{
		RetainSucceeded: by.RetainSucceeded.Truncate(Resolution),
		RetainCancelled: by.RetainCancelled.Truncate(Resolution),
		RetainDead:      by.RetainDead.Truncate(Resolution),
		MaxInFlight:     by.MaxInFlight,
		MaxPerKey:       by.MaxPerKey,
		Fair:            by.Fair,
		Ordered:         by.Ordered,
		Rate:            Rate{by.Rate.N, by.Rate.Per.Truncate(Resolution)},
		Owner:           by.Owner,
		Declared:        by.Declared,
		Version:         by.Version + 1,
	}
	if p.Version != by.Version && p != next { // unless it is a repeat
		return Policy{}, fmt.Errorf("%w: its version is %d, not %d", ErrConflict, p.Version, by.Version)
	}
	return next, nil
}
