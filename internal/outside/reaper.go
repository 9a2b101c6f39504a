package outside

import (
	"os/exec"
	"sync"
)

// A Reaper waits for orphans: processes that programs have started and left behind. The system gives them to process 1, where they
// stay as zombies, each with a number that nobody else can get, until they are waited for. In a container process 1 may be jq.
//
// It takes the end of no program that it is told of by [ProgramOptions.Reaper], for the program's handler waits for that. The zero value
// is ready to use.
type Reaper struct {
	starting sync.RWMutex // held for reading from before a program starts until it is known
	programs sync.Map     // by their process ids
}

// start starts the command and knows its process from then on, however soon it ends.
func (r *Reaper) start(cmd *exec.Cmd) error {
	if r == nil {
		return cmd.Start()
	}
	r.starting.RLock()
	defer r.starting.RUnlock()
	err := cmd.Start()
	if err == nil {
		r.programs.Store(cmd.Process.Pid, nil)
	}
	return err
}

// waited forgets the program, which has been waited for: its number may be that of an orphan from now on.
func (r *Reaper) waited(pid int) {
	if r != nil {
		r.programs.Delete(pid)
	}
}
