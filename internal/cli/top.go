package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
)

func (a *app) top() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "top", Short: "watch queues and workers in the terminal", Args: takesNone(),
		Long: "Watch queues and workers in the terminal. Press q to quit. The column done/s shows how many jobs per second have finished\n" +
			"since the previous refresh. Each refresh counts all jobs.",
	}
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "time between refreshes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if every < 100*time.Millisecond {
			return misuse("--every must be at least 100ms")
		}
		if !isTerminal(a.std.out) || !isTerminal(a.std.in) {
			return misuse("this command needs a terminal: stats and workers print the same data once")
		}
		p, err := a.place()
		if err != nil {
			return err
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			screen := &screen{ctx: cmd.Context(), client: jq.NewClient(s, nil), shown: p.shown, every: every}
			_, err := tea.NewProgram(screen, tea.WithContext(cmd.Context()), tea.WithInput(a.std.in), tea.WithOutput(a.std.out)).Run()
			if errors.Is(err, tea.ErrProgramKilled) && cmd.Context().Err() != nil {
				return nil // a signal ended it
			}
			return err
		})
	}
	return cmd
}

// A screen shows the latest snapshot of a store.
type screen struct {
	ctx    context.Context
	client *jq.Client
	shown  string // the store
	every  time.Duration

	width, height int
	last, before  snapshot
	err           error // of the latest refresh
}

// A snapshot is the state of a store at one moment.
type snapshot struct {
	counts  jq.Counts
	paused  map[string]bool
	workers []jq.Worker
}

// refreshDue is the message that starts the next refresh.
type refreshDue struct{}

// Init implements tea.Model.
func (s *screen) Init() tea.Cmd { return s.snapshot }

// snapshot reads the store.
func (s *screen) snapshot() tea.Msg {
	counts, err := s.client.Count(s.ctx, jq.Filter{})
	if err != nil {
		return err
	}
	l := snapshot{counts: counts, paused: map[string]bool{}}
	queues, err := s.client.Queues(s.ctx)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	for _, q := range queues {
		l.paused[q.Name] = q.Paused
	}
	if l.workers, err = s.client.Workers(s.ctx); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return l
}

// Update implements tea.Model.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	later := tea.Tick(s.every, func(time.Time) tea.Msg { return refreshDue{} })
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		if key := msg.String(); key == "q" || key == "ctrl+c" || key == "esc" {
			return s, tea.Quit
		}
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case refreshDue:
		return s, s.snapshot
	case snapshot:
		s.before, s.last, s.err = s.last, msg, nil
		return s, later
	case error:
		s.err = msg // keep the previous snapshot and try again
		return s, later
	}
	return s, nil
}

// View implements tea.Model.
func (s *screen) View() tea.View {
	v := tea.NewView(s.text())
	v.AltScreen = true
	return v
}

// text returns the screen, cut to the window.
func (s *screen) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s   %s   every %v, press q to quit\n", printable(s.shown), moment(s.last.counts.Now), s.every)
	if s.err != nil {
		fmt.Fprintf(&text, "the latest refresh failed: %s\n", oneLine(s.err))
	}
	text.WriteByte('\n')
	s.queues(&text)
	text.WriteByte('\n')
	s.workers(&text)
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	if s.height > 0 && len(lines) > s.height {
		lines = lines[:s.height]
	}
	for i, line := range lines {
		if runes := []rune(line); s.width > 0 && len(runes) > s.width {
			lines[i] = string(runes[:s.width])
		}
	}
	return strings.Join(lines, "\n")
}

func (s *screen) queues(text *strings.Builder) {
	if len(s.last.counts.Queues) == 0 {
		text.WriteString("no queue has jobs\n")
		return
	}
	table := newTable(text)
	row(table, "queue", "ready", "due", "oldest due", "in flight", "retrying", "dead", "done/s", "paused")
	for _, q := range s.last.counts.Queues {
		oldest, paused := "", ""
		if q.Due > 0 {
			oldest = span(s.last.counts.Now.Sub(q.OldestDue).Truncate(time.Second))
		}
		if s.last.paused[q.Queue] {
			paused = "yes"
		}
		row(table, q.Queue, q.Jobs[jq.Ready], q.Due, oldest, q.Jobs[jq.InFlight], q.Jobs[jq.Retrying], q.Jobs[jq.Dead], s.rate(q), paused)
	}
	_ = table.Flush() // a Builder never fails
}

// rate returns how many jobs of the queue have finished per second since the previous snapshot. It misses jobs that were deleted in
// between.
func (s *screen) rate(q jq.QueueCount) string {
	ended := func(q jq.QueueCount) int64 { return q.Jobs[jq.Succeeded] + q.Jobs[jq.Dead] + q.Jobs[jq.Cancelled] }
	for _, earlier := range s.before.counts.Queues {
		if passed := s.last.counts.Now.Sub(s.before.counts.Now); earlier.Queue == q.Queue && passed > 0 {
			return fmt.Sprintf("%.1f", float64(max(0, ended(q)-ended(earlier)))/passed.Seconds())
		}
	}
	return ""
}

func (s *screen) workers(text *strings.Builder) {
	if len(s.last.workers) == 0 {
		text.WriteString("no workers are running, and none died in the last day\n")
		return
	}
	table := newTable(text)
	row(table, "worker", "running", "queues", "last beat", "alive")
	for _, w := range s.last.workers {
		alive := "yes"
		if w.Stale {
			alive = "STALE"
		}
		row(table, w.Name, fmt.Sprintf("%d of %d", w.Running, w.Slots), strings.Join(w.Queues, ", "),
			span(max(0, s.last.counts.Now.Sub(w.BeatAt)).Truncate(time.Second))+" ago", alive)
	}
	_ = table.Flush() // a Builder never fails
}
