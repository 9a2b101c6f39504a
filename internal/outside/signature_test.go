package outside

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// secrets are parsed from their texts.
func secrets(t *testing.T, texts ...string) []Secret {
	t.Helper()
	var list []Secret
	for _, text := range texts {
		s, err := ParseSecret(text)
		require.NoError(t, err)
		list = append(list, s)
	}
	return list
}

// sent is the request that the handler sends for a job at the time.
func sent(t *testing.T, payload jq.Payload, now time.Time, texts ...string) (http.Header, string) {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(now)
	var headers http.Header
	var body []byte
	handle, _ := receiver(t, WebhookOptions{Secrets: secrets(t, texts...), Clock: clk}, func(_ http.ResponseWriter, r *http.Request) {
		headers = r.Header
		body, _ = io.ReadAll(r.Body)
	})
	once(t, handle, payload)
	return headers, string(body)
}

// hmacOf is computed as the convention says it.
func hmacOf(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = io.WriteString(mac, text)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// The signatures are what the documentation says they are: one for each secret, the first one first.
func TestEachSecretSignsTheIDTheTimeAndTheBody(t *testing.T) {
	t.Parallel()
	key := "\x00\xff key of thirty bytes or so .\n"
	now := time.Unix(1_800_000_000, 999_999_999)
	doc := json.RawMessage(`{"to":  "Ada"}`)
	h, body := sent(t, jq.Raw{Name: "größe 100%/mail.v2-x", Document: doc}, now,
		"whsec_"+base64.StdEncoding.EncodeToString([]byte(key)), "very secret")
	id := "1-1-gr%C3%B6%C3%9Fe%20100%25/mail%2Ev2-x"
	text := id + `.1800000000.{"to":  "Ada"}`
	assert.Equal(t, []string{id}, h["Webhook-Id"])
	assert.Equal(t, []string{"1800000000"}, h["Webhook-Timestamp"])
	assert.Equal(t, []string{hmacOf(key, text) + " " + hmacOf("very secret", text)}, h["Webhook-Signature"])
	assert.Equal(t, string(doc), body)

	h, _ = sent(t, jq.Raw{Name: "mail", Document: doc}, now)
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		assert.NotContains(t, h, name, "without a secret there is nothing to sign")
	}
}

// Another run of the job is another delivery: its token is signed, so that nobody can pass an older run off as a newer one.
func TestDeliveryIDIsThatOfTheRun(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, j := range []jq.Job{
		{ID: 7, Token: 3, Kind: "mail"}, {ID: 7, Token: 4, Kind: "mail"}, {ID: 73, Token: 3, Kind: "mail"}, {ID: 7, Token: 3, Kind: "mail-3"},
		{ID: 7, Token: 3, Kind: "ma.il"}, {ID: 7, Token: 3, Kind: "ma%2Eil"},
	} {
		id := deliveryID(&jq.Run{Job: j})
		assert.False(t, ids[id], "%s was given twice", id)
		assert.NotContains(t, id, ".")
		ids[id] = true
	}
	assert.True(t, ids["7-3-mail"])
}

func TestSecretIsTextOrBase64(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"very secret":          "very secret",
		" whsec_YWJj":          " whsec_YWJj",
		"c2VjcmV0":             "c2VjcmV0",
		"whsec_c2VjcmV0ICE=":   "secret !",
		"whsec_+/+/":           "\xfb\xff\xbf",
		"":                     "",
		"whsec_":               "",
		"whsec_c2VjcmV0ICE":    "",
		"whsec_-_-_":           "",
		"whsec_hidden secret!": "",
	} {
		s, err := ParseSecret(text)
		assert.Equal(t, want, string(s.key), text)
		assert.Equal(t, want == "", err != nil, text)
		if err != nil {
			assert.NotContains(t, err.Error(), "hidden")
		}
	}
}

// The example that the convention's own libraries are tested with.
func TestSignatureIsThatOfTheConvention(t *testing.T) {
	t.Parallel()
	key := secrets(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")[0].key
	got := hmacOf(string(key), `msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}`)
	assert.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", got)
}
