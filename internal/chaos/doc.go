// Package chaos proves by its tests what the others assume: that real processes, killed at random together with their database,
// neither lose a job nor finish one twice.
//
// Workers and a producer are processes of their own, made of the test's binary. While they work on one SQLite file, or on a
// Postgres that is thrown away, the test kills, stops and ends workers, kills the producer, kills the server of the database and
// its sessions, and cuts and holds up what goes over the network. Outside of it all stands a ledger, in the test itself: it is
// told of every run and of every effect, and refuses effects with an older token than one that it has seen, as any store can that
// is not the queue's own. When the storm is over and every job has ended, what the store has kept is compared with the ledger:
//
//   - every acknowledged job is there, none twice, and has succeeded, is dead with its retries used up, or was cancelled;
//   - what has succeeded was finished by the run whose effect was the last one accepted, and has that run's result;
//   - no lease was run twice, and no job more often than its MaxRetries allow;
//   - the history has every run that the ledger has seen, and its tokens grew as the table of transitions says;
//   - an effect in the database, made in one transaction with the end of its job, is there exactly if that run has succeeded;
//   - a unique key never had two live holders.
//
// A soak is the same fleet at rest: a steady load for long, with a worker killed now and then, and what is measured meanwhile is
// judged by package soak. The commands below cmd repeat the storms and the soaks, for make chaos and make soak.
//
// An attack is another thing: hostile clients of a server, of which honest ones must not notice too much.
//
// The faults and the pauses between them are drawn from a seed that is printed; JQ_CHAOS_SEED draws the same ones again. When
// processes get to run is up to the system, so that a replay is alike and not the same.
package chaos
