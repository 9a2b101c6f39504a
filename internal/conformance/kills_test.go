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

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/model"
)

var kills = flag.String("kills", "", "print which cases fail which broken stores: those of its group, or all, which takes an hour")

// TestKills prints the matrix of cases and broken stores (make kills). A case that fails no broken store alone can
// go, unless it is the first page of its topic, or the model lacks the ability that it is about.
func TestKills(t *testing.T) {
	if *kills == "" {
		t.Skip("takes minutes, and proves nothing that TestMutantsAreKilled does not: make kills")
	}
	killers := map[model.Fault][]string{}
	var mu sync.Mutex
	t.Run("each", func(t *testing.T) {
		for _, m := range model.Faults() {
			t.Run(string(m.Fault), func(t *testing.T) {
				t.Parallel()
				var names []string
				for _, k := range conformance.Cases() {
					if (*kills == "all" || strings.HasPrefix(k.Name, m.Group+"/")) && conformance.Run(t.Context(), broken(m.Fault), k).Failed {
						names = append(names, k.Name)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				killers[m.Fault] = names
			})
		}
	})
	printKills(os.Stdout, killers)
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
