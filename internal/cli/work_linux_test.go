package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// In a container, work is process 1. It inherits the orphans of its programs and must reap them.
func TestWorkAsProcess1LeavesNoZombies(t *testing.T) {
	const jobs = 20
	w := newSandbox(t)
	w.under = []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Geteuid() != 0 {
		w.under = append(w.under, "--user", "--map-root-user")
	}
	if said, err := w.command("version").CombinedOutput(); err != nil {
		t.Skipf("this system does not allow a new PID namespace: %s: %v: %s", strings.Join(w.under, " "), err, said)
	}
	require.NoError(w, os.WriteFile(filepath.Join(w.folder, "jobs"), bytes.Repeat([]byte(`{"kind":"k","payload":0}`+"\n"), jobs), 0o600))
	w.run("enqueue", "--lines", "jobs")
	worker := w.start("working on", "work", "--exec", `sh -c '(exit 9) & echo x >> ends'`)
	w.lines("ends", jobs)
	require.Eventually(w, func() bool { return w.stats()[jq.Succeeded] == jobs }, time.Minute, 10*time.Millisecond)

	first := childrenOf(w, fmt.Sprint(worker.Process.Pid))
	require.Len(w, first, 1, "unshare has one child, which is process 1 of the namespace")
	require.Eventually(w, func() bool { return len(childrenOf(w, first[0])) == 0 }, time.Minute, 10*time.Millisecond, "zombies stay")
}

// childrenOf returns the children of the first thread of a process, including zombies.
func childrenOf(w *sandbox, pid string) []string {
	text, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		w.Error(err)
	}
	return strings.Fields(string(text))
}
