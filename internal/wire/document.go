package wire

import (
	"bytes"
	"encoding/json"
)

// A document as it goes over the wire: as JSON, and its text where that is another one.
func split(doc []byte) (json.RawMessage, *string) {
	if len(doc) == 0 {
		return nil, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, doc); err != nil { // no store has kept it; what is no JSON goes as text alone
		text := string(doc)
		return nil, &text
	}
	if compact.Len() == len(doc) {
		return doc, nil
	}
	text := string(doc)
	return compact.Bytes(), &text
}

// join is the document that was split.
func join(doc json.RawMessage, text *string) []byte {
	if text != nil {
		return []byte(*text)
	}
	return doc
}
