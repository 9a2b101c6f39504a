package wire

import (
	"bytes"
	"encoding/json"
)

// split returns the document as JSON, and its exact text if that differs.
func split(doc []byte) (json.RawMessage, *string) {
	if len(doc) == 0 {
		return nil, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, doc); err != nil { // not JSON, so no store has kept it: only the text is sent
		text := string(doc)
		return nil, &text
	}
	if compact.Len() == len(doc) {
		return doc, nil
	}
	text := string(doc)
	return compact.Bytes(), &text
}

// join returns the document that split was given.
func join(doc json.RawMessage, text *string) []byte {
	if text != nil {
		return []byte(*text)
	}
	return doc
}
