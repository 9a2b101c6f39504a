package store

import "context"

// A Cost is a counter that only grows: what a store has spent since it was opened, or its database since it was created.
type Cost struct {
	Name  string // what is counted
	Unit  string // empty for a plain number
	Total int64  // so far
}

// An Accountant knows what its work costs the database or the file. It is for people who measure, and a store need not
// implement it.
type Accountant interface {
	// Spent returns the costs so far, always the same costs in the same order.
	Spent(ctx context.Context) ([]Cost, error)
}

// A SnapshotHolder can hold a snapshot open beside its own work, as a backup or a long report does. It is for people who
// measure, and a store need not implement it.
type SnapshotHolder interface {
	// HoldSnapshot returns once the snapshot is taken. The snapshot is held until release is called.
	HoldSnapshot(ctx context.Context) (release func() error, err error)
}
