//go:build !linux

package kv

import "time"

func steadyClock() func() time.Duration { return sinceNow() }
