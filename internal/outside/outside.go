// Package outside lets workers that are not written in Go do the work of jobs: a program that is run for each of them, or a
// web server that is sent each of them. What it returns is a handler like any other, so that the server around it keeps the
// lease alive, ends the run when it has to, and writes how it ended.
//
// # Results
//
// What a program writes to its standard output, and what a web server answers, is the result of the job: a JSON document as
// it is, any other text as a JSON string without the ends of line behind it, and nothing at all as no result. More than 1 MiB
// fails the job for good, for the work is done and would be done again.
//
// # Checkpoints
//
// A checkpoint is not handed over, because it may be longer than what a variable of the environment or a header can hold. Who
// saves one does so by way of the HTTP API, with the token of the lease, and reads it there.
package outside

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// resultRoom is how much of a result is read. What is more than the limit are ends of line, which are no part of it.
const resultRoom = store.MaxDocBytes + 2

// keepResult makes what was written the result of the run.
func keepResult(run *jq.Run, written *head) error {
	doc := document(written.bytes)
	if written.cut || len(doc) > store.MaxDocBytes {
		return jq.Never(fmt.Errorf("the result is longer than %d bytes, which is the most that can be kept: keep it elsewhere, "+
			"and let the result say where", store.MaxDocBytes))
	}
	if len(doc) == 0 {
		return nil
	}
	return run.SetResult(json.RawMessage(doc))
}

// document is the text as JSON.
func document(text []byte) []byte {
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 || utf8.Valid(trimmed) && json.Valid(trimmed) {
		return trimmed
	}
	var doc bytes.Buffer
	encoder := json.NewEncoder(&doc)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(string(bytes.TrimRight(text, "\r\n"))) // a string can always be encoded, and a buffer written
	return bytes.TrimSpace(doc.Bytes())
}

// checkDuration says what is wrong with an option, by its name.
func checkDuration(name string, d time.Duration) error {
	if d < 0 || d > store.MaxDuration {
		return fmt.Errorf("jq: %s must be 0 to %v, not %v", name, store.MaxDuration, d)
	}
	return nil
}
