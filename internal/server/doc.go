// Package server runs jobs: it claims them from a store, hands them to handlers, keeps their leases alive, and writes down
// how they ended.
//
//	FetchAndClaim                                             Ack, NAck
//	    │                                                         ▲
//	    ▼                                                         │
//	  fetch ──▶ buffer ──▶ slots, each runs a handler ──▶ ended ──┴─ commit
//	              └───────────────────┴──────────────────────┘
//	                        held: beat extends, watch cancels
//
// Each box is a loop of its own, and so are recovery, retention and the registry of workers. What they share is the book of
// the held leases, in held.go. A job is held from its claim until the store has answered for its end; while it is held, beat
// extends its lease. Watch looks after the time by which a handler has to be told to stop: its own timeout, and the end of
// its lease where the store has not been heard of.
//
// No loop can hold up another one: a beat waits for no result to be written, and recovery for no slot to be free. Every
// goroutine is waited for when the server stops, but for handlers that never return.
package server
