package outside

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGateKeepsToPublicAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"1.1.1.1":                "",
		"9.255.255.255":          "",
		"11.0.0.0":               "",
		"100.63.255.255":         "",
		"100.128.0.0":            "",
		"172.15.255.255":         "",
		"172.32.0.0":             "",
		"192.169.0.0":            "",
		"223.255.255.255":        "",
		"2606:4700::1111":        "",
		"::ffff:1.1.1.1":         "",
		"64:ff9b::1.1.1.1":       "",
		"0.0.0.0":                "unspecified",
		"0.1.2.3":                "unspecified",
		"10.0.0.1":               "private",
		"100.64.0.0":             "inner",
		"100.127.255.255":        "inner",
		"127.0.0.1":              "loopback",
		"127.255.255.255":        "loopback",
		"169.254.169.254":        "link-local",
		"172.16.0.0":             "private",
		"172.31.255.255":         "private",
		"192.0.0.8":              "reserved",
		"192.0.2.1":              "documentation",
		"192.168.255.255":        "private",
		"198.18.0.1":             "benchmarks",
		"198.51.100.1":           "documentation",
		"203.0.113.1":            "documentation",
		"224.0.0.1":              "multicast",
		"239.255.255.255":        "multicast",
		"240.0.0.1":              "reserved",
		"255.255.255.255":        "reserved",
		"::":                     "unspecified",
		"::1":                    "loopback",
		"::1%lo":                 "loopback",
		"::127.0.0.1":            "not a public address",
		"::ffff:127.0.0.1":       "loopback",
		"::ffff:169.254.169.254": "link-local",
		"64:ff9b::10.0.0.1":      "private",
		"64:ff9b::a9fe:a9fe":     "link-local",
		"64:ff9b:1::1.1.1.1":     "not a public address",
		"100::1":                 "not a public address",
		"2001::1":                "reserved",
		"2001:db8::1":            "documentation",
		"2002:7f00:1::":          "relay",
		"3fff::1":                "documentation",
		"fc00::1":                "private",
		"fd12::1":                "private",
		"fe80::1%eth0":           "link-local",
		"fec0::1":                "not a public address",
		"ff02::1":                "multicast",
	} {
		err := gate{}.check(netip.MustParseAddr(addr))
		if want == "" {
			assert.NoError(t, err, addr)
		} else {
			assert.ErrorContains(t, err, want, addr)
		}
	}
}

func TestGateLetsThroughWhatIsAllowedAndNothingElse(t *testing.T) {
	g := gate{[]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("127.0.0.0/8")}}
	for _, addr := range []string{"10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fe80::1", "fe80::1%eth0", "127.0.0.1", "1.1.1.1"} {
		assert.NoError(t, g.check(netip.MustParseAddr(addr)), addr)
	}
	for _, addr := range []string{"10.2.0.0", "169.254.169.254", "::1", "fd00::1"} {
		assert.Error(t, g.check(netip.MustParseAddr(addr)), addr)
	}
	assert.Error(t, g.control("tcp", "nonsense", nil))
	assert.Error(t, g.control("tcp", "[::1]:80", nil))
	assert.NoError(t, g.control("tcp4", "127.0.0.1:80", nil))
}
