//go:build unix

package chaos

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

// onPatroni is how often each fault comes where servers fail over by themselves, which takes them half a minute each time.
var onPatroni = map[string]int{killWorker: 8, endWorker: 2, stopWorker: 8, killProducer: 4, failOver: 5}

// R62, with servers that nobody tends: the primary and the Patroni beside it are killed, their machine answers nothing, the others elect a new one, and the processes
// find it among the hosts of their URL. Nothing that was acknowledged is lost, and no lease is given twice. The dead node comes back as
// a standby by itself.
func TestPatroniFailsOver(t *testing.T) {
	programs := os.Getenv(pgtest.PatroniVariable)
	if programs == "" {
		t.Skip(pgtest.PatroniVariable + " names no folder with patroni and etcd: make chaos finds or unpacks them, and runs this test, which takes four minutes")
	}
	t.Parallel()
	p, err := pgtest.StartPatroni(t.Context(), programs, 3)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Stop()) })
	s := newStorm(t, role{dsn: p.URL + "&application_name=chaos"}, nil)
	primary, err := p.Settled(t.Context())
	require.NoError(t, err)
	s.patroni, s.server = p, primary.Cluster
	s.weather(onPatroni)
	assert.Empty(t, s.ledger.losses)
	require.Len(t, s.outages, onPatroni[failOver])
	slices.Sort(s.outages)
	figures.Print(t, "%s: enqueueing goes on between %v and %v after the death of the primary; the dead node has caught up as a standby within %v of its start",
		s.place(), s.outages[0].Round(time.Millisecond), s.outages[len(s.outages)-1].Round(time.Millisecond), slices.Max(s.comebacks).Round(time.Millisecond))
}

// failOverByItself kills the primary with its Patroni, and waits until calls are answered again. Then it starts the dead node, as its
// machine does that was started again, and waits until it follows.
func (s *storm) failOverByItself(st step) {
	dead, err := s.patroni.Settled(s.Context())
	require.NoError(s, err)
	s.ledger.mayRunAhead(math.MaxInt) // so that the producer calls all the time, also while no worker claims
	failed := s.failed()
	died := time.Now()
	require.NoError(s, dead.Crash(s.Context()))
	s.answered(2) // one may have been answered before, and not have been told of
	s.outages = append(s.outages, time.Since(died))
	require.Greater(s, s.failed(), failed, "calls fail while nobody accepts writes")
	s.after(1) // workers go on too
	s.ledger.mayRunAhead(usually)
	s.done[st.fault]++
	back := time.Now()
	require.NoError(s, dead.Return())
	primary, err := s.patroni.Settled(s.Context())
	require.NoError(s, err)
	s.comebacks = append(s.comebacks, time.Since(back))
	require.NotEqual(s, dead, primary, "another node accepts writes")
	s.server = primary.Cluster
}

// failed is how many calls of the producer were not answered so far.
func (s *storm) failed() int {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.doubts + s.ledger.unavailable
}

// The guide shows the settings of the test.
func TestGuideShowsTheSettingsOfPatroni(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "high-availability.md"))
	require.NoError(t, err)
	assert.Contains(t, string(guide), "\n```yaml\n"+strings.TrimSuffix(pgtest.PatroniSettings, "\n")+"\n```\n")
}
