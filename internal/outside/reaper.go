package outside

import (
	"os/exec"
	"sync"
)

// A Reaper waits for orphans: processes that a program has started and left behind. The system makes them children of process
// 1. When they end, they stay zombies, and keep their process ids, until process 1 waits for them. In a container, process 1
// may be jq.
//
// A Reaper does not wait for the programs that it knows by [ProgramOptions.Reaper], because their handlers do. The zero value
// is ready to use.
type Reaper struct {
	starting sync.RWMutex // read-locked from before a program starts until programs has it
	programs sync.Map     // by process id
}

// start starts the command. The reaper knows the process from then on, even if it ends at once.
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

// waited forgets a program after its handler has waited for it. From now on, an orphan may get its process id.
func (r *Reaper) waited(pid int) {
	if r != nil {
		r.programs.Delete(pid)
	}
}
