package report

import (
	"fmt"
	"os"
	"strings"

	"github.com/seed-ed332417/jq/bench/internal/rounds"
)

// Document puts the figures into a text, between its marks: <!-- bench NAME --> and <!-- end NAME -->.
func (r *Report) Document(path string, more []Goal) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(data)
	for _, part := range []struct{ name, text string }{
		{"circumstances", r.circumstances()}, {"goals", r.goalTable(more)}, {"figures", r.figures()},
		{"settings", r.settings()}, {"scenarios", scenarios()},
	} {
		if text, err = between(text, part.name, part.text); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// Put puts one part into a text, between its marks.
func Put(path, name, part string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := between(string(data), name, part)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// between replaces the text between the marks.
func between(text, name, part string) (string, error) {
	begin, end := "<!-- bench "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("it has no lines %q and %q to put figures between", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + part + end + after, nil
}

func (r *Report) circumstances() string {
	asked := fmt.Sprintf("%d rounds", r.Rounds)
	if r.Cut {
		asked += ", interrupted before the end"
	}
	return fmt.Sprintf("%s, on %s. %s. %s; %s jobs drained; continuous runs of %s.\n",
		r.Date, r.Machine, r.Servers, asked, Thousands(float64(r.Jobs)), r.Duration)
}

func (r *Report) goalTable(more []Goal) string {
	t := table{rows: [][]string{{"#", "Work", "Goal", "jq", "Peer", "Limit", "Ratio"}}}
	for _, g := range r.goals(more) {
		row := []string{g.ID, g.Work, g.Target, g.JQ, g.Peer, g.Limit, g.Ratio}
		for i := range row {
			if row[i] == "" {
				row[i] = "–"
			}
		}
		t.rows = append(t.rows, row)
	}
	b := &strings.Builder{}
	t.markdown(b)
	return b.String()
}

func (r *Report) figures() string {
	b := &strings.Builder{}
	for i, t := range r.tables() {
		if i > 0 {
			b.WriteByte('\n')
		}
		t.rows[0][0] = t.title + ", " + t.rows[0][0]
		t.markdown(b)
	}
	if failed := len(r.Failed()); failed > 0 {
		fmt.Fprintf(b, "\n%d runs did not count, because not every job's end was found in the store.\n", failed)
	}
	return b.String()
}

func (r *Report) settings() string {
	b := &strings.Builder{}
	for _, p := range r.Peers {
		fmt.Fprintf(b, "- %s\n", p.note())
	}
	return b.String()
}

func scenarios() string {
	b := &strings.Builder{}
	for _, s := range rounds.Scenarios() {
		fmt.Fprintf(b, "- `%s`: %s\n", s.Name, s.Does)
	}
	return b.String()
}
