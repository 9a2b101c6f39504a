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
	"github.com/seed-ed332417/jq/internal/sample"
)

func (a *app) top() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "top", Short: "watch queues and workers in the terminal", Args: takesNone(),
		Long: "Watch queues and workers in the terminal: the overview of the dashboard. Press q to quit. The queue whose oldest due job has\n" +
			"waited longest comes first. Jobs are counted in the background, for at most a tenth of the time, so counts of a large store\n" +
			"are older than the rest. The numbers of the last hour are those of all servers of the store.",
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
			screen := newScreen(cmd.Context(), s, p.shown, every, sample.Tenth)
			defer screen.counts.Close()
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
	store  jq.Store
	client *jq.Client
	counts *sample.Sampler[jq.Counts]
	shown  string // the store
	every  time.Duration

	countWait time.Duration // how long a refresh waits for a count, and so gets those of small stores

	width, height int
	last          snapshot
	err           error // of the latest refresh
}

// newScreen returns a screen without a snapshot. It counts the jobs of the store, and then rests this many times as long as that took.
func newScreen(ctx context.Context, store jq.Store, shown string, every time.Duration, rest int) *screen {
	s := &screen{ctx: ctx, store: store, client: jq.NewClient(store, nil), shown: shown, every: every, countWait: 200 * time.Millisecond}
	count := func(ctx context.Context) (jq.Counts, error) { return s.client.Count(ctx, jq.Filter{}) }
	s.counts = sample.New(count, sample.Options{Rest: rest})
	return s
}

// refreshDue is the message that starts the next refresh.
type refreshDue struct{}

// Init implements tea.Model.
func (s *screen) Init() tea.Cmd { return s.snapshot }

// snapshot reads the store.
func (s *screen) snapshot() tea.Msg {
	counting := s.counts.Ask()
	l, err := s.read()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.countWait)
	defer cancel()
	sample.Wait(ctx, counting)
	latest, good := s.counts.Answers()
	if l.counts = good; !good.Known() && latest.Known() {
		return latest.Err
	}
	return l.finished()
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
		s.last, s.err = msg, nil
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
	fmt.Fprintf(&text, "%s   %s   every %v, press q to quit\n", printable(s.shown), moment(s.last.now), s.every)
	if s.err != nil {
		fmt.Fprintf(&text, "the latest refresh failed: %s\n", oneLine(s.err))
	}
	switch counts := s.last.counts; {
	case s.last.now.IsZero():
	case !counts.Known():
		text.WriteString("the jobs are being counted\n")
	case s.last.now.Sub(counts.Value.Now) > 10*time.Second:
		fmt.Fprintf(&text, "jobs counted %s ago, in %s\n", span(s.last.now.Sub(counts.Value.Now).Truncate(time.Second)), span(counts.Took))
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
	if len(s.last.queues) == 0 {
		text.WriteString("no queue has jobs\n")
		return
	}
	table := newTable(text)
	row(table, "queue", "state", "oldest due", "blocked", "ready", "in flight", "retrying", "dead", "done 1h", "failed 1h", "wait p95", "run p95")
	for _, q := range s.last.queues {
		oldest := ""
		if !q.oldestDue.IsZero() {
			oldest = span(q.waited(s.last.now).Truncate(time.Second))
		}
		cells := []any{q.name, q.state, oldest}
		for _, state := range []jq.State{jq.Blocked, jq.Ready, jq.InFlight, jq.Retrying, jq.Dead} {
			cells = append(cells, s.count(q, state))
		}
		row(table, append(cells, q.hour()...)...)
	}
	_ = table.Flush() // a Builder never fails
}

// count returns the number of jobs, or nothing before the first count.
func (s *screen) count(q topQueue, state jq.State) string {
	if !s.last.counts.Known() {
		return ""
	}
	return fmt.Sprint(q.jobs[state])
}

// hour returns the cells about the last hour.
func (q topQueue) hour() []any {
	if q.activity == nil {
		return []any{"", "", "", ""}
	}
	high := func(h jq.Histogram) string {
		if h.Total() == 0 {
			return ""
		}
		return span(h.Quantile(0.95).Round(time.Millisecond))
	}
	return []any{q.activity.Succeeded, q.activity.Retried + q.activity.Dead, high(q.activity.Waited), high(q.activity.Ran)}
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
			span(max(0, s.last.now.Sub(w.BeatAt)).Truncate(time.Second))+" ago", alive)
	}
	_ = table.Flush() // a Builder never fails
}
