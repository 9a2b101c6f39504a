//go:build !race

package figures

// pass tells the run under the race detector from the one without, where both have figures of one test.
const pass = ""
