package httpapi

import "net/http"

// front answers with the page of Options.Home. Without one, it redirects to the documentation.
func (a *API) front(w *exchange, r *http.Request) error {
	if a.options.Home == nil {
		return a.home(w, r)
	}
	return a.ui(w, r)
}

// ui answers with a file of Options.Home, which chooses how long browsers keep it.
func (a *API) ui(w *exchange, r *http.Request) error {
	if a.options.Home == nil {
		return noSuchCall
	}
	a.allow(w)
	w.Header().Del("Cache-Control")
	a.options.Home.ServeHTTP(w, r)
	return nil
}
