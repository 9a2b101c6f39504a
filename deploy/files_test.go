// Package deploy has no code: these tests read the files beside it.
package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dashboard is what the tests read of grafana.json.
type dashboard struct {
	Templating struct {
		List []struct{ Name string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct{ Unit string }
	}
	Targets []struct {
		RefID        string
		Expr         string
		LegendFormat string
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func theDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana.json")), &d))
	require.NotEmpty(t, d.Panels)
	return d
}

// TestPanelsSayWhatTheyShow: each has a title, a unit, a description and a place of its own.
func TestPanelsSayWhatTheyShow(t *testing.T) {
	taken, ids, titles := map[[2]int]string{}, map[int]bool{}, map[string]bool{}
	for _, p := range theDashboard(t).Panels {
		require.NotEmpty(t, p.Title)
		assert.False(t, ids[p.ID], "%s: the id %d is taken", p.Title, p.ID)
		assert.False(t, titles[p.Title], "two panels are called %s", p.Title)
		ids[p.ID], titles[p.Title] = true, true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				assert.Empty(t, taken[[2]int{x, y}], "%s covers another panel", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		assert.Regexp(t, `^[A-Z].*\.$`, p.Description, "%s: a sentence", p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			assert.NotEmpty(t, target.LegendFormat, "%s %s", p.Title, target.RefID)
		}
	}
}

var metric = regexp.MustCompile(`\bjq_[a-z_]+`)

// TestMetricsAreDocumented: panels and alerts use only metrics that the page for operators explains.
func TestMetricsAreDocumented(t *testing.T) {
	page := read(t, "../docs/observability.md")
	used := metric.FindAllString(read(t, "alerts.yaml"), -1)
	for _, p := range theDashboard(t).Panels {
		for _, target := range p.Targets {
			used = append(used, metric.FindAllString(target.Expr, -1)...)
		}
	}
	for _, name := range used {
		assert.Regexp(t, "`"+strings.TrimSuffix(name, "_bucket")+"[`{]", page)
	}
}

// TestVariablesAreDefined: a query uses no variable that the dashboard does not have.
func TestVariablesAreDefined(t *testing.T) {
	d := theDashboard(t)
	known := []string{"__rate_interval"} // Grafana's own
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				assert.Contains(t, known, name[1], p.Title)
			}
		}
	}
}

// alerts are the names in alerts.yaml.
func alerts(t *testing.T) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^      - alert: (\w+)$`).FindAllStringSubmatch(read(t, "alerts.yaml"), -1) {
		names = append(names, m[1])
	}
	require.Len(t, names, strings.Count(read(t, "alerts.yaml"), "alert:"))
	require.True(t, len(names) > 5)
	return names
}

// TestAlertsAreTriedAndDocumented: each has a time at which it fires and one at which it does not, and a line on what to do.
func TestAlertsAreTriedAndDocumented(t *testing.T) {
	tried, page := read(t, "alerts_test.yaml"), read(t, "../docs/observability.md")
	for _, name := range alerts(t) {
		assert.Regexp(t, `alertname: `+name+`, exp_alerts: \[\]`, tried, "%s must not fire at some time", name)
		assert.Regexp(t, `alertname: `+name+`\n\s+exp_alerts:\n\s+- exp_labels`, tried, "%s must fire at some time", name)
		assert.Equal(t, 1, strings.Count(page, "| `"+name+"` |"), "%s has a line in docs/observability.md", name)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(Jq\\w+)` \\|").FindAllStringSubmatch(page, -1) {
		assert.True(t, slices.Contains(alerts(t), m[1]), "docs/observability.md has a line for %s, which does not exist", m[1])
	}
}
