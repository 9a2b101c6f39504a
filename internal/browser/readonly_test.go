package browser

import "testing"

// A server that may only be looked at offers nothing to change.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := alive(t, options{})
	ro := serve(t, options{store: s.from, flags: []string{"--read-only"}})
	tab := open(t, ro.url, desk)
	for _, v := range views(s) {
		if v.name == "enqueue" || v.name == "unknown" {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			p := tab.during(t)
			p.see(v)
			p.shows("read-only")
			p.nothingToChange()
		})
	}
}
