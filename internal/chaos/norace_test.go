//go:build unix && !race

package chaos

// longestPause is how many runs are waited for, at most, between two faults.
const longestPause = 26
