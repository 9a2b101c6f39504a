//go:build !linux

package outside

import "log/slog"

// Start does nothing on this system, because containers run on Linux.
func (r *Reaper) Start(*slog.Logger) (stop func()) { return func() {} }
