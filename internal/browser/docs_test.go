package browser

import "testing"

// The page of the HTTP API keeps the same rules as the dashboard.
func TestDocs(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	for _, l := range looks {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			p := open(t, s.url, l)
			p.visit("/docs")
			p.shows("/v1/jobs")
			p.accessible()
			p.fits()
		})
	}
}
