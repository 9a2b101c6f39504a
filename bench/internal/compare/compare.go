package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/peers"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/bench/internal/site"
)

// Options says how long the experiments take.
type Options struct {
	Patience time.Duration // how long a queue has to give a dead worker's job to another one, with its default settings
	Jobs     int           // how many jobs run while a snapshot is held
	Progress io.Writer
}

// Run makes all experiments and returns their table, in Markdown.
func Run(ctx context.Context, s *site.Site, o Options) (string, error) {
	all := subjects()
	deaths, err := each(ctx, s, o.Progress, all, func(ctx context.Context, one subject, p peer.Place) (string, error) {
		after, err := death(ctx, one, p, false, o.Patience)
		if errors.Is(err, errSilent) {
			return fmt.Sprintf("not within %.0f s", o.Patience.Seconds()), nil
		}
		return fmt.Sprintf("after %.0f s", after.Seconds()), err
	})
	if err != nil {
		return "", err
	}
	lates, err := each(ctx, s, o.Progress, all, func(ctx context.Context, one subject, p peer.Place) (string, error) {
		l, err := late(ctx, one, p)
		return l.String(), err
	})
	if err != nil {
		return "", err
	}
	held, err := snapshot(ctx, s, o)
	if err != nil {
		return "", err
	}
	return circumstances(all) + "\n" + table(all, []row{
		{"A worker is killed in the middle of a job. When does another worker get the job, with default settings?", deaths},
		{"A worker is stopped in the middle of a job, until another one has the job. It goes on, and reports success. What does the store do? Then the second run fails. What becomes of the job?", lates},
		{fmt.Sprintf("Another session holds a snapshot of the database while %s jobs run. How many blocks does Postgres look at for a lone job, before them and %.0f s after them?",
			report.Thousands(float64(o.Jobs)), settled.Seconds()), held},
	}), nil
}

// circumstances says what was compared, and with which settings.
func circumstances(all []subject) string {
	versions := map[string]string{}
	for _, p := range peers.All() {
		versions[p.Name] = p.Version
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s, on %s: jq on Postgres, River %s on Postgres, asynq %s on Redis.\n", time.Now().Format(time.DateOnly), report.ThisMachine(), versions["river"], versions["asynq"])
	b.WriteString("So that the second experiment takes no hour, it has other settings than the defaults:\n\n")
	for _, s := range all {
		fmt.Fprintf(b, "- %s: %s\n", s.name, cmp.Or(s.own, "none, because it has none for this"))
	}
	return b.String()
}

// String says what became of the job.
func (l Late) String() string {
	if l.accepted() {
		return fmt.Sprintf("takes the late report: the job counts as %s while its second run is under way, and as %s when that fails", l.After, l.End)
	}
	return fmt.Sprintf("refuses the late report: the job counts as %s until its second run fails, then as %s", l.After, l.End)
}

// each makes an experiment with all subjects at the same time, each in an empty store. What a subject lacks on this machine is its answer.
func each(ctx context.Context, s *site.Site, progress io.Writer, all []subject, try func(context.Context, subject, peer.Place) (string, error)) ([]string, error) {
	answers := make([]string, len(all))
	group, trying := errgroup.WithContext(ctx)
	var removes []func() error
	for i, one := range all {
		place, remove, err := s.Place(ctx, peer.Peer{Store: one.store})
		if absence, ok := errors.AsType[*site.Absence](err); ok {
			fmt.Fprintf(progress, "%s is left out: %s\n", one.name, absence.Reason)
			answers[i] = "not tried: " + absence.Reason
			continue
		}
		if err != nil {
			return nil, errors.Join(err, group.Wait())
		}
		removes = append(removes, remove)
		group.Go(func() (err error) {
			if answers[i], err = try(trying, one, place); err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			fmt.Fprintf(progress, "%s: %s\n", one.name, answers[i])
			return nil
		})
	}
	err := group.Wait()
	for _, remove := range removes {
		err = errors.Join(err, remove())
	}
	return answers, err
}

// A row is a question with an answer of each subject.
type row struct {
	question string
	answers  []string
}

func table(all []subject, rows []row) string {
	b := &strings.Builder{}
	b.WriteString("| |")
	for _, s := range all {
		b.WriteString(" " + s.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s |\n", r.question, strings.Join(r.answers, " | "))
	}
	return b.String()
}
