package memory

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store/waittest"
)

// The last two jobs that others wait for end at the same moment, and callers leave anywhere in between. What waits becomes ready once.
func TestTheLastTwoAtOnce(t *testing.T) {
	s := New(Options{})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	seen := map[int64]bool{}
	for len(seen) < 1000 {
		ctx, leave := context.WithCancel(t.Context())
		var both sync.WaitGroup
		in, out := io.Pipe()
		for range 2 {
			both.Go(func() {
				assert.ErrorIs(t, waittest.EndTogether(ctx, s, s.DB(), out), context.Canceled)
			})
		}
		lines := bufio.NewScanner(in)
		for n := 0; lines.Scan(); n++ {
			var id int64
			_, err := fmt.Sscan(lines.Text(), &id)
			require.NoError(t, err)
			seen[id] = true
			if n == 100 {
				leave()
				go func() { both.Wait(); _ = out.Close() }()
			}
		}
		leave()
	}
	waittest.Check(t, s, seen)
}
