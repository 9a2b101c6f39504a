package store

import "context"

// A Cost is something that a store has spent since it was opened, or its database since it was made: a counter that only grows.
type Cost struct {
	Name  string
	Unit  string // empty for what is counted by the piece
	Total int64
}

// An Accountant knows what its work costs the database or the file. It is for people who measure, and no part of what stores
// must do.
type Accountant interface {
	// Spent returns the costs so far, always the same ones in the same order.
	Spent(ctx context.Context) ([]Cost, error)
}

// A SnapshotHolder can hold a snapshot open beside its own work, as a backup or a long report does. It is for people who
// measure, and no part of what stores must do.
type SnapshotHolder interface {
	// HoldSnapshot returns when the snapshot is taken. It is held until release is called.
	HoldSnapshot(ctx context.Context) (release func() error, err error)
}
