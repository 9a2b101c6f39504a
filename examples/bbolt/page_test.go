package bbolt

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
)

// An unpaused store keeps pauses, but its claims do not look at them.
type unpaused struct {
	*kv.Store
	paused map[string]bool
}

func (u *unpaused) SetPaused(ctx context.Context, queue string, paused bool) error {
	u.paused[queue] = paused
	return u.Store.SetPaused(ctx, queue, paused)
}

func (u *unpaused) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]contract.Job, error) {
	if u.paused[req.Queue] {
		if err := u.Store.SetPaused(ctx, req.Queue, false); err != nil {
			return nil, err
		}
		defer func() { _ = u.Store.SetPaused(ctx, req.Queue, true) }() // the case fails anyway
	}
	return u.Store.FetchAndClaim(ctx, req)
}

const inChild = "JQ_TEST_UNPAUSED"

// It runs as TestConformance of a store that is broken, in a process of its own.
func TestUnpausedStore(t *testing.T) {
	if os.Getenv(inChild) == "" {
		t.Skip("another test runs it, because it fails")
	}
	jqtest.Cases(t, jqtest.Adapter{New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		i, err := newInstance(ctx, t.TempDir(), clk)
		if err != nil {
			return nil, err
		}
		i.Store = &unpaused{i.Store.(*kv.Store), map[string]bool{}}
		i.Reopen = nil
		return i, nil
	}, Exclude: jqtest.KVExclusions()})
}

// The page of stores shows what the suite says of a store whose claims do not look at pauses, with omissions that three dots mark.
func TestPageShowsACaseThatFails(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/write-a-store.md")
	require.NoError(t, err)
	_, shown, found := strings.Cut(string(page), "```text\n")
	require.True(t, found)
	shown, _, found = strings.Cut(shown, "```")
	require.True(t, found)

	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, self, "-test.run", "^TestUnpausedStore$/^Queue$/^PausedQueueGivesNothing$")
	child.Env = append(os.Environ(), inChild+"=true")
	out, err := child.CombinedOutput()
	require.Error(t, err, "the case fails")
	said := normal(strings.ReplaceAll(string(out), "TestUnpausedStore/", "TestConformance/Cases/"))
	for line := range strings.Lines(shown) {
		rest := said
		for part := range strings.SplitSeq(strings.TrimSpace(normal(line)), "…") {
			_, after, found := strings.Cut(rest, strings.TrimSpace(part))
			if !assert.True(t, found, "the suite does not print %q, of the line %q:\n%s", part, line, said) {
				break
			}
			rest = after
		}
	}
}

// normal is what the suite prints without what differs between versions and runs.
func normal(text string) string {
	return regexp.MustCompile(`\.go:\d+:|\(\d+\.\d+s\)|the 1\. of \d+`).ReplaceAllString(text, "")
}
