// Package server runs jobs: it claims them from a store, calls their handlers, extends their leases, and writes their verdicts.
//
//	FetchAndClaim                                             Ack, NAck
//	    │                                                         ▲
//	    ▼                                                         │
//	  claim ──▶ buffer ──▶ slots, each runs a handler ──▶ ended ──┴─ commit
//	              └───────────────────┴──────────────────────┘
//	                     lease book: beat extends, watch cancels
//
// Each box is a loop of its own, and so are recovery, retention, schedules and the registry of workers. They share the lease book, in
// book.go. A job is in the book from its claim until the store has answered the write of its verdict, and heartbeats extend its lease until then. The
// watch cancels a handler when its timeout ends, or when its lease may have expired because the store did not answer.
//
// No loop delays another one: a heartbeat does not wait for a write, and recovery does not wait for a free slot. A server that stops waits
// for every goroutine, except for handlers that never return.
//
// The loops use these words:
//
//	verdict   what to write about a run that has ended: an ack, or a nack with its form
//	cancel    end the context of a handler, with a cause
//	abandon   stop waiting for a handler that was cancelled and does not return, and reuse its slot
//	drain     claim no more jobs, release the buffered ones, and let handlers finish: the first part of a stop
//	stop      end the server
//	lost      a lease that the store has given to somebody else, or ended
//	refused   a call or an item that the store answered with an error
//	delay     put off the write of a verdict, while heartbeats extend its lease
package server
