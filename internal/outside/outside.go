// Package outside runs jobs with workers that are not written in Go: it starts a program for each job, or sends each job to a
// web server. Both are handlers like any other. So the server around the handler keeps the lease alive, ends the run when it
// must, and records how the run ended.
//
// # Results
//
// The result of the job is what a program writes to its standard output, or what a web server answers. A JSON document is kept
// as it is. Any other text becomes a JSON string, without the line ends behind it. An empty text is no result. If the result is
// larger than 1 MiB, the job is dead: its work is done, and a retry would do it again.
//
// # Checkpoints
//
// A program or a web server does not get the checkpoint of its job, because the checkpoint may be too long for an environment
// variable or a header. To save and read a checkpoint, use the HTTP API with the token of the lease.
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

// resultRoom is how many bytes of a result are read. The two bytes above the limit are for line ends, which are not part of the
// result.
const resultRoom = store.MaxDocBytes + 2

// keepResult sets the written text as the result of the run.
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

// document returns the text as JSON.
func document(text []byte) []byte {
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 || utf8.Valid(trimmed) && json.Valid(trimmed) {
		return trimmed
	}
	var doc bytes.Buffer
	encoder := json.NewEncoder(&doc)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(string(bytes.TrimRight(text, "\r\n"))) // encoding a string and writing to a buffer never fail
	return bytes.TrimSpace(doc.Bytes())
}

// checkDuration returns an error with the option's name if the duration is out of range.
func checkDuration(name string, d time.Duration) error {
	if d < 0 || d > store.MaxDuration {
		return fmt.Errorf("jq: %s must be 0 to %v, not %v", name, store.MaxDuration, d)
	}
	return nil
}
