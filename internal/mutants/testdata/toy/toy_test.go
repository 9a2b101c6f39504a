package toy

import (
	"sync"
	"testing"
	"time"
)

func TestSum(t *testing.T) {
	if got := Sum(1, 2); got != 3 {
		t.Error(got)
	}
}

func TestAdult(t *testing.T) {
	if Adult(10) || !Adult(30) {
		t.Error()
	}
}

func TestCountdown(*testing.T) { Countdown(3) }

func TestLarger(t *testing.T) {
	if Larger(1, 2) != 2 || Larger(2, 1) != 2 || Larger(2, 2) != 2 {
		t.Error()
	}
}

func TestFirst(t *testing.T) {
	if _, err := First(nil); err == nil {
		t.Error()
	}
	if got, err := First([]int{7, 8}); err != nil || got != 7 {
		t.Error(got, err)
	}
}

func TestCounter(t *testing.T) {
	var c Counter
	if c.Add(); c.Add() != 2 {
		t.Error()
	}
}

func TestGauge(*testing.T) {
	var g Gauge
	var all sync.WaitGroup
	for n := range 10 {
		all.Go(func() { g.Set(n) })
	}
	all.Wait()
}

func TestPatience(t *testing.T) {
	if Patience > time.Minute {
		t.Error()
	}
}
