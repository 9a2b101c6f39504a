package outside

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// A gate allows connections to public addresses and to the addresses in allow.
type gate struct{ allow []netip.Prefix }

// A reserve is a range of addresses that are not public.
type reserve struct {
	prefix netip.Prefix
	name   string
}

// reserves lists the ranges that the registries of special addresses (RFC 6890) exclude from global use. Of IPv6, only 2000::/3
// is assigned, so the list has only the exceptions within it, and the ranges that have a name.
var reserves = [...]reserve{
	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a provider's inner address"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "the address of a relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "an address for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("::/128"), "an unspecified address"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("2001::/23"), "a reserved address"}, // includes Teredo
	{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
	{netip.MustParsePrefix("2002::/16"), "the address of a relay"}, // 6to4, which contains an IPv4 address
	{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
}

var (
	givenOut = netip.MustParsePrefix("2000::/3")
	nat64    = netip.MustParsePrefix("64:ff9b::/96")
)

// control checks each connection before it is made, after the name was resolved.
func (g gate) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address that can be judged: %w", address, err)
	}
	return g.check(to.Addr())
}

// admit refuses a host that is known not to be public without resolving it.
func (g gate) admit(host string) error {
	if name := strings.TrimSuffix(strings.ToLower(host), "."); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		err := g.check(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		if err == nil || g.check(netip.IPv6Loopback()) == nil {
			return nil
		}
		return err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.check(addr)
	}
	return nil
}

// check returns the reason why nothing may be sent to the address, or nil.
func (g gate) check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap() // a prefix never contains an address with a zone
	for _, prefix := range g.allow {
		if prefix.Contains(addr) {
			return nil
		}
	}
	if nat64.Contains(addr) { // a translator forwards to the IPv4 address in the last four bytes
		bytes := addr.As16()
		return g.check(netip.AddrFrom4([4]byte(bytes[12:])))
	}
	for _, r := range reserves {
		if r.prefix.Contains(addr) {
			return refusal(addr, r.name)
		}
	}
	if addr.Is6() && !givenOut.Contains(addr) {
		return refusal(addr, "not a public address")
	}
	return nil
}

func refusal(addr netip.Addr, what string) error {
	return fmt.Errorf("%v is %s, and nothing is sent there unless it is allowed", addr, what)
}
