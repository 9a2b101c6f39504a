package conformance_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/model"
)

var kills = flag.Bool("kills", false, "run every case against every broken store, and print which case fails which")

// TestKills prints the matrix of cases and broken stores (make kills). The slow cases meet only the stores that fewer than two
// quick ones fail, which is enough to tell which case is the only one. A case that fails no broken store alone can go, unless it
// is the first page of its topic, or the model lacks the ability that it is about.
func TestKills(t *testing.T) {
	if !*kills {
		t.Skip("takes minutes, and proves nothing that TestMutantsAreKilled does not: make kills")
	}
	var quick, slow []conformance.Case
	for _, k := range conformance.Cases() {
		if conformance.Run(t.Context(), broken(), k).Took < 20*time.Millisecond {
			quick = append(quick, k)
		} else {
			slow = append(slow, k)
		}
	}
	killers := map[model.Fault][]string{}
	var mu sync.Mutex
	t.Run("each", func(t *testing.T) {
		for _, m := range model.Faults() {
			t.Run(string(m.Fault), func(t *testing.T) {
				t.Parallel()
				names := failing(t, m.Fault, quick)
				if len(names) < 2 {
					names = append(names, failing(t, m.Fault, slow)...)
				}
				mu.Lock()
				defer mu.Unlock()
				killers[m.Fault] = names
			})
		}
	})
	printKills(os.Stdout, killers)
}

// failing are the cases that the broken store fails.
func failing(t *testing.T, fault model.Fault, cases []conformance.Case) []string {
	t.Helper()
	var names []string
	for _, k := range cases {
		if conformance.Run(t.Context(), broken(fault), k).Failed {
			names = append(names, k.Name)
		}
	}
	return names
}

func printKills(w io.Writer, killers map[model.Fault][]string) {
	alone, shared := map[string][]string{}, map[string][]string{}
	for _, m := range model.Faults() {
		names := killers[m.Fault]
		fmt.Fprintf(w, "broken store %s: failed by %d cases\n", m.Fault, len(names))
		for _, name := range names {
			if len(names) == 1 {
				alone[name] = append(alone[name], string(m.Fault))
			} else {
				shared[name] = append(shared[name], string(m.Fault))
			}
		}
	}
	for _, k := range conformance.Cases() {
		fmt.Fprintf(w, "case %s: fails %d alone (%s), %d with others (%s)\n", k.Name,
			len(alone[k.Name]), strings.Join(alone[k.Name], " "), len(shared[k.Name]), strings.Join(slices.Compact(shared[k.Name]), " "))
	}
}
