package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// CheckHost checks a name for Options.Hosts.
func CheckHost(name string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	if name == "" || strings.ContainsAny(name, " /:*@[]") || strings.ContainsFunc(name, control) {
		return fmt.Errorf("%q: want the name of a host or an address, without a port", name)
	}
	return nil
}

// hostOf returns the host name in the request, without the port.
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

// checkHost refuses a request with a host name that is not this server's. If a web site makes its name resolve to this
// server, its pages look to a browser like pages of this server: only the Host header shows the difference.
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
