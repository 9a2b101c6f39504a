package main

// Example compares the output of the program.
func Example() {
	main()
	// Output:
	// A: claimed the job under token 1, and falls silent
	// B: recovers a lease; the job's token is 2 now
	// B: charges 100 cents under token 3: <nil>
	// B: the store answers "ok"; the job has succeeded
	// A: is back, and knows nothing of all that
	// A: charges 100 cents under token 1: an older run: refused
	// A: the store answers "stale"; the job has succeeded
	// The ledger: map[1:100]
}
