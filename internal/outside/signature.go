package outside

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq"
)

// A Secret signs requests.
type Secret struct{ key []byte }

// ParseSecret reads a secret: whsec_ and the key in base64, or any other text, which is the key itself. Its errors do not
// contain the secret.
func ParseSecret(text string) (Secret, error) {
	encoded, isEncoded := strings.CutPrefix(text, "whsec_")
	if !isEncoded {
		if text == "" {
			return Secret{}, errors.New("the secret is empty")
		}
		return Secret{[]byte(text)}, nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return Secret{}, errors.New("want base64 behind whsec_, as echo whsec_$(openssl rand -base64 32) prints it")
	}
	return Secret{key}, nil
}

// sign sets the headers from which a receiver can verify who sent the request, and when.
func sign(secrets []Secret, now time.Time, h http.Header, run *jq.Run) {
	if len(secrets) == 0 {
		return
	}
	id, seconds := deliveryID(run), strconv.FormatInt(now.Unix(), 10)
	var signatures []string
	for _, s := range secrets {
		mac := hmac.New(sha256.New, s.key)
		mac.Write([]byte(id + "." + seconds + "."))
		mac.Write(run.Payload)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", seconds)
	h.Set("webhook-signature", strings.Join(signatures, " "))
}

// deliveryID returns the header webhook-id, which the signature covers besides the time and the payload. It must not contain a
// full stop, because a full stop ends it in the signed text.
func deliveryID(run *jq.Run) string {
	kind := strings.ReplaceAll(escaped(run.Kind), ".", "%2E")
	return strconv.FormatInt(run.ID, 10) + "-" + strconv.FormatInt(run.Token, 10) + "-" + kind
}
