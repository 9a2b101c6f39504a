package store

import "context"

// A Finding is something about a store that people should know.
type Finding struct {
	Name   string // what sort of finding it is: lasts, for scripts
	Detail string // what was found
	Advice string // what to do about it
}

// An Examiner looks at what keeps the jobs: the database, the file. It is for people, and no part of what stores must do.
type Examiner interface {
	// Examine returns what it finds wrong, and nothing where all is well.
	Examine(ctx context.Context) ([]Finding, error)
}

// A Schema is how far what keeps the jobs is migrated.
type Schema struct {
	Version int // of the store; 0 where there is none yet
	Newest  int // that this program knows
}
