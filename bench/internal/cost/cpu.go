package cost

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A process is what the system says of a running process.
type process struct {
	parent int
	own    time.Duration // CPU time of its own
	reaped time.Duration // that of its ended children, and of theirs
}

// tick is the unit of CPU times in /proc, on all systems that have it.
const tick = 10 * time.Millisecond

// processes reads all processes from /proc.
func processes(proc fs.FS) (map[int]process, error) {
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := fs.ReadFile(proc, entry.Name()+"/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		p, err := parse(string(stat))
		if err != nil {
			return nil, fmt.Errorf("/proc/%d/stat: %w", id, err)
		}
		p.own = max(p.own, threads(proc, entry.Name()))
		all[id] = p
	}
	return all, nil
}

// parse reads the line of a process. Its second field is a name in parentheses, which can contain anything.
func parse(stat string) (process, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const parent, user, system, childrenUser, childrenSystem = 1, 11, 12, 13, 14
	if len(fields) <= childrenSystem {
		return process{}, fmt.Errorf("it has %d fields after the name: %q", len(fields), stat)
	}
	var numbers [childrenSystem + 1]int64
	for _, i := range []int{parent, user, system, childrenUser, childrenSystem} {
		var err error
		if numbers[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return process{}, err
		}
	}
	return process{
		parent: int(numbers[parent]),
		own:    time.Duration(numbers[user]+numbers[system]) * tick,
		reaped: time.Duration(numbers[childrenUser]+numbers[childrenSystem]) * tick,
	}, nil
}

// threads returns the CPU time of the process's threads, in nanoseconds instead of ticks. It lacks that of ended threads.
func threads(proc fs.FS, id string) (sum time.Duration) {
	files, _ := fs.Glob(proc, id+"/task/*/schedstat")
	for _, file := range files {
		text, err := fs.ReadFile(proc, file)
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(text), " ")
		if spent, err := strconv.ParseInt(first, 10, 64); err == nil {
			sum += time.Duration(spent)
		}
	}
	return sum
}

// tree returns the CPU time of a process and all its descendants, running or ended, except for some of them and what is below those.
func tree(all map[int]process, root int, except ...int) time.Duration {
	p, runs := all[root]
	if !runs || slices.Contains(except, root) {
		return 0
	}
	sum := p.own + p.reaped
	for id, child := range all {
		if child.parent == root && id != root {
			sum += tree(all, id, except...)
		}
	}
	return sum
}
