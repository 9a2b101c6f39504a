// Package chaos tests what the other tests assume: that real processes, killed at random together with their database, neither
// lose a job nor finish one twice.
//
// Workers and a producer run as separate processes of the test's binary. They work on one SQLite file or on a temporary
// Postgres. Meanwhile the test kills, pauses and ends workers, kills the producer, kills the database server and its sessions,
// and cuts and delays network connections. A ledger in the test itself stands for an external system. Workers report every run
// and every effect to it. It refuses effects with a token older than one that it has seen, as any external store can. When the
// storm is over and every job has ended, the test compares the store with the ledger:
//
//   - every acknowledged job is there, none twice, and has succeeded, is dead with its retries used up, or was cancelled;
//   - each job that has succeeded was finished by the run whose effect was accepted last, and has that run's result;
//   - no lease was run twice, and no job more often than its MaxRetries allow;
//   - the history has every run that the ledger has seen, and its tokens grew as the table of transitions says;
//   - an effect in the database, made in one transaction with the end of its job, is there exactly if that run has succeeded;
//   - a unique key never had two live holders;
//   - whenever the test looked, no more jobs were in flight than the queue allows, in all and with the same limit key;
//   - in an ordered queue, each run of a job began when all earlier jobs of its limit key had ended, and a job that was
//     committed late went next.
//
// A soak runs the same fleet under a long, steady load, and kills a worker now and then. Package soak judges its measurements.
// The commands below cmd repeat the storms and the soaks, for make chaos and make soak.
//
// An attack is different: hostile clients use a server, and honest clients must not suffer much.
//
// A printed seed determines the faults and the pauses between them; JQ_CHAOS_SEED repeats them. The system schedules the
// processes, so a replay is similar, but not identical.
package chaos
