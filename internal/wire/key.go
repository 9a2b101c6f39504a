package wire

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
)

// random is the prefix of generated request keys.
const random = "remote-"

// RandomKey generates a request key for a call that has none, so that the call can be repeated.
func RandomKey() string { return random + rand.Text() }

// IsRandomKey reports whether a key has the form of a generated one. Nobody else can guess such a key.
func IsRandomKey(key string) bool {
	text, is := strings.CutPrefix(key, random)
	return is && len(text) == len(rand.Text()) && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// KeyHeader encodes a request key as a header value, since a header can not carry every key. It writes every byte that is not
// visible ASCII, and the percent sign, as %XX.
func KeyHeader(key string) string {
	var value strings.Builder
	for i := range len(key) {
		if c := key[i]; c > ' ' && c < 0x7f && c != '%' {
			value.WriteByte(c)
		} else {
			fmt.Fprintf(&value, "%%%02X", c)
		}
	}
	return value.String()
}

// KeyOf decodes the request key from the header value.
func KeyOf(value string) (string, error) {
	key, err := url.PathUnescape(value)
	if err != nil {
		return "", refuse("request_key", "must have a percent sign as %25")
	}
	return key, nil
}
