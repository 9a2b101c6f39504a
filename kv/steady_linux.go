package kv

import (
	"time"

	"golang.org/x/sys/unix"
)

// steadyClock returns a clock that nobody sets and that counts on while the machine sleeps, which that of package time does not.
func steadyClock() func() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return sinceNow()
	}
	return func() time.Duration {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // which it has taken once
		return time.Duration(now.Nano())
	}
}
