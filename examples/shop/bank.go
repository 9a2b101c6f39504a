package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// errRefused means that the bank does not accept the card, now or later.
var errRefused = errors.New("the bank refuses the card")

// A bank is the URL of a bank.
type bank string

// charge charges the card of an order. A bank charges once for each idempotency key, however often it is asked.
func (b bank) charge(ctx context.Context, p Pay) error {
	body, err := json.Marshal(map[string]any{"card": p.Card, "cents": p.Cents})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(b)+"/charges", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", fmt.Sprintf("order-%d", p.Order))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusPaymentRequired:
		return errRefused
	}
	return fmt.Errorf("the bank answers %s", res.Status)
}

// testBank stands in for a bank. It refuses the card "card-refused", is too busy when "card-busy" is charged for the first time, and
// accepts all others. It charges nobody.
func testBank() http.Handler {
	var asked sync.Map // by idempotency key
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var charge struct{ Card string }
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&charge); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, again := asked.LoadOrStore(r.Header.Get("Idempotency-Key"), true)
		switch {
		case charge.Card == "card-refused":
			w.WriteHeader(http.StatusPaymentRequired)
		case charge.Card == "card-busy" && !again:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}
