package jq

import "github.com/seed-ed332417/jq/internal/store/adapters/memory"

// A MemoryStore keeps jobs in the memory of the process: for tests, for trying things out, and for work that may be lost with
// its process. It has every ability. Its method DB is a database without tables whose transactions can carry jobs, so that code
// which enqueues in a transaction can be tested as it is.
type MemoryStore = memory.Store

// MemoryOptions are what can be chosen; the zero value of each field means its default.
type MemoryOptions = memory.Options

// NewMemory returns an empty store. Options may be nil. It panics if MaxLease is negative or longer than ten years.
func NewMemory(options *MemoryOptions) *MemoryStore {
	if options == nil {
		options = &MemoryOptions{}
	}
	return memory.New(*options)
}
