package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// CheckHost says what is wrong with a name in Options.Hosts.
func CheckHost(name string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	if name == "" || strings.ContainsAny(name, " /:*@[]") || strings.ContainsFunc(name, control) {
		return fmt.Errorf("%q: want the name of a host or an address, without a port", name)
	}
	return nil
}

// hostOf is the name by which the request calls the server.
func hostOf(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return plainHost(host)
}

func plainHost(host string) string {
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// checkHost refuses a request that calls the server by a name which is none of its own. A page whose name was made to point here is no
// stranger to a browser: the name is all that tells.
func (a *API) checkHost(r *http.Request) error {
	if len(a.options.Hosts) == 0 && !a.options.Loopback {
		return nil
	}
	host := hostOf(r)
	_, notAddress := netip.ParseAddr(host)
	if a.options.Loopback && (notAddress == nil || host == "localhost") ||
		slices.ContainsFunc(a.options.Hosts, func(name string) bool { return plainHost(name) == host }) {
		return nil
	}
	f := noSuchHost
	if !a.options.Loopback {
		f.Detail = "call it by one of its names: serve --host says which"
	}
	return f
}
