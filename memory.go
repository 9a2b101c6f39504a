package jq

import "github.com/seed-ed332417/jq/internal/store/adapters/memory"

// A MemoryStore keeps jobs in the memory of the process: for tests, for trials, and for work that may be lost with its process.
// It has every ability of the contract. Its method DB returns a database without tables whose transactions can carry jobs, so
// that you can test code that enqueues in a transaction.
//
// Its methods beyond the contract:
//
//	// DB opens transactions for Store.InTx, so that you can test code that takes a *sql.Tx without a database.
//	func (*MemoryStore) DB() *sql.DB
type MemoryStore = memory.Store

// MemoryOptions configures NewMemory. Zero fields mean the default.
//
// Its fields:
//
//	Clock    clock.Clock   // time of the store; nil means the clock of the process
//	MaxLease time.Duration // longest lease; zero means an hour
//	Logger   *slog.Logger  // gets a warning when the clock goes back; nil means slog.Default()
type MemoryOptions = memory.Options

// NewMemory returns an empty store. Options may be nil. It panics if MaxLease is negative or longer than ten years.
func NewMemory(options *MemoryOptions) *MemoryStore {
	if options == nil {
		options = &MemoryOptions{}
	}
	return memory.New(*options)
}
