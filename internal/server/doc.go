// Package server runs jobs: it claims them from a store, hands them to handlers, keeps their leases alive, and writes down
// how they ended.
//
//	FetchAndClaim                                             Ack, NAck
//	    │                                                         ▲
//	    ▼                                                         │
//	  fetch ──▶ buffer ──▶ slots, each runs a handler ──▶ ended ──┴─ commit
//	              └───────────────────┴──────────────────────┘
//	                     lease book: beat extends, watch cancels
//
// Each box is a loop of its own, and so are recovery, retention and the registry of workers. They share the lease book, in book.go. A job
// is in the book from its claim until the store has answered for its end; for so long beat extends its lease. Watch cancels a handler when
// its timeout ends, or when its lease may have expired because the store did not answer.
//
// No loop holds up another one: a beat waits for no result to be written, and recovery for no free slot. A server that stops waits for every
// goroutine, except handlers that never return.
package server
