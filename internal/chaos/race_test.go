//go:build unix && race

package chaos

// longestPause is how many runs are waited for, at most, between two faults: fewer under the race detector, where they take long.
const longestPause = 10
