package bench

import (
	"time"

	"golang.org/x/sys/windows"
)

// cpuTime returns how much CPU time this process has used, in its own code and in the system.
func cpuTime() time.Duration {
	var created, exited, system, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &system, &user) != nil {
		return 0
	}
	const tick = 100 * time.Nanosecond
	ticks := func(t windows.Filetime) time.Duration {
		return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * tick
	}
	return ticks(system) + ticks(user)
}
