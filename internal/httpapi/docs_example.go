package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-ed332417/jq/internal/wire"
)

// wide is how long the lines of an example can be without being broken beside the text.
const wide = 60

// curl returns the documented request as a command for a shell. It reads the address and the token from the variables that jobq's
// commands read too.
func curl(method, path string, op *operation) string {
	var out strings.Builder
	out.WriteString("curl")
	body, has := op.RequestBody.Content.get(wire.JSON)
	if said := options(op); said != "" {
		out.WriteString(" " + said)
	}
	if method != http.MethodGet && (method != http.MethodPost || !has) {
		out.WriteString(" -X " + method)
	}
	query := ""
	for _, p := range op.Parameters {
		switch {
		case p.In == "path":
			path = strings.Replace(path, "{"+p.Name+"}", shown(p.Example), 1)
		case p.In == "query" && p.Example != nil:
			query = "?" + p.Name + "=" + shown(p.Example)
		}
	}
	out.WriteString(` "$JQ_SERVER` + path + query + `"`)
	if op.Roles != nil {
		out.WriteString(" \\\n  -H \"Authorization: Bearer $JQ_TOKEN\"")
	}
	if has {
		out.WriteString(" \\\n  -H 'Content-Type: application/json' \\\n  -d '" + strings.ReplaceAll(shown(body.Example), "'", `'\''`) + "'")
	}
	return out.String()
}

// options are those that a call needs so that its answer is seen as it comes, and as a whole.
func options(op *operation) string {
	for _, r := range op.Responses {
		if r.Name >= "400" {
			continue
		}
		if _, stream := r.Value.Content.get(wire.Events); stream {
			return "-N"
		}
		if r.Value.Headers != nil || r.Value.Content == nil {
			return "-i"
		}
	}
	return ""
}

// shown returns the text of an example: JSON, or the text that a string of JSON is.
func shown(example json.RawMessage) string {
	var text string
	if json.Unmarshal(example, &text) == nil {
		return strings.TrimRight(text, "\n")
	}
	var out bytes.Buffer
	if json.Compact(&out, example) != nil {
		return ""
	}
	return layout(out.Bytes(), wide)
}

// layout writes a compact document of JSON with what fits on a line on one, and everything else indented.
func layout(text json.RawMessage, room int) string {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return string(text)
	}
	parts := flat(text, room-2)
	first, last := string(text[0]), string(text[len(text)-1])
	line := first + strings.Join(parts, ", ") + last
	if len(line) <= room && !strings.Contains(line, "\n") {
		return line
	}
	return first + "\n  " + strings.ReplaceAll(strings.Join(parts, ",\n"), "\n", "\n  ") + "\n" + last
}

// documents are the fields whose text the server keeps byte for byte. Blanks in them would be kept too, and told in every answer.
var documents = []string{"payload", "result", "checkpoint", "progress"}

// flat returns the members of an object with their names, or the items of an array.
func flat(text json.RawMessage, room int) (parts []string) {
	var members ordered[json.RawMessage]
	if text[0] == '{' && json.Unmarshal(text, &members) == nil {
		for _, m := range members {
			name, err := wire.Marshal(m.Name)
			if err != nil {
				panic(err) // a string can always be encoded
			}
			value := string(m.Value)
			if !slices.Contains(documents, m.Name) {
				value = layout(m.Value, room-len(name)-3)
			}
			parts = append(parts, string(name)+": "+value)
		}
		return parts
	}
	var items []json.RawMessage
	if json.Unmarshal(text, &items) == nil {
		for _, item := range items {
			parts = append(parts, layout(item, room-1))
		}
	}
	return parts
}
