package store

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A store may keep records as JSON: nothing of one gets lost, whatever its documents look like. The epoch is not of the record.
func TestRecordComesBackFromJSONAsItWas(t *testing.T) {
	var r Record
	set(t, reflect.ValueOf(&r).Elem())
	text, err := json.Marshal(&r)
	require.NoError(t, err)
	back := Record{Epoch: r.Epoch}
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, r, back, string(text))
}

// set gives every field a value.
func set(t *testing.T, v reflect.Value) {
	t.Helper()
	switch into := v.Addr().Interface().(type) {
	case *time.Time:
		*into = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		return
	case *[]byte:
		*into = []byte(` {"a" : "<b>&\u2028"} `)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			set(t, field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(t, v.Index(0))
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	default:
		t.Fatalf("no value for a %v", v.Type())
	}
}

// A row may have been changed by hand. A document that is not JSON is shown as it is, and does not keep the other jobs of a page from their readers.
func TestDocumentsThatAreNotJSONAreShownAsText(t *testing.T) {
	for _, doc := range []string{`oops`, `{"a":1`, ` "`, `1 2`} {
		text, err := json.Marshal([]Job{{ID: 1, Payload: []byte(doc), Result: []byte(`1`)}, {ID: 2, Payload: []byte(`{"a":1}`)}})
		require.NoError(t, err, doc)
		var jobs []Job
		require.NoError(t, json.Unmarshal(text, &jobs), doc)
		assert.Equal(t, doc, string(jobs[0].Payload))
		assert.Equal(t, `1`, string(jobs[0].Result))
		assert.JSONEq(t, `{"a":1}`, string(jobs[1].Payload))
	}
}

// Decoders refuse text that nests too deep, and a store may keep a document that is as deep as any can be: it does not keep the other jobs of
// a page from their readers.
func TestDeepDocumentsTravelAsText(t *testing.T) {
	const deepest = 10_000
	deep := strings.Repeat("[", deepest) + strings.Repeat("]", deepest)
	require.True(t, json.Valid([]byte(deep)))
	require.False(t, json.Valid([]byte("["+deep+"]")))
	for doc, embedded := range map[string]bool{
		deep: false, strings.Repeat(`{"a":`, maxEmbedded+1) + `1` + strings.Repeat("}", maxEmbedded+1): false,
		strings.Repeat("[", maxEmbedded) + strings.Repeat("]", maxEmbedded): true,
		`"` + strings.Repeat("[", deepest) + `"`:                            true,
		`["\\` + `\"` + strings.Repeat("[", deepest) + `\\"]`:               true,
		"[" + strings.Repeat("[],", deepest) + "{}]":                        true,
	} {
		sent, _ := SplitDocument([]byte(doc))
		assert.Equal(t, embedded, sent != nil, doc[:20])
		text, err := json.Marshal(map[string]any{"jobs": []Job{{ID: 1, Payload: []byte(doc)}, {ID: 2, Payload: []byte(`1`)}}})
		require.NoError(t, err)
		var page struct{ Jobs []Job }
		require.NoError(t, json.Unmarshal(text, &page), doc[:20])
		assert.Equal(t, doc, string(page.Jobs[0].Payload), doc[:20])
		assert.Equal(t, `1`, string(page.Jobs[1].Payload))
	}
}

// Each document of a job stands under a name of its own.
func TestDocumentsOfAJobComeBackFromJSON(t *testing.T) {
	want := Job{ID: 1, Payload: []byte(`1`), Checkpoint: []byte(`{"at": 2}`), Progress: []byte(`"3"`), Result: []byte(`[4]`)}
	text, err := json.Marshal(want)
	require.NoError(t, err)
	var got Job
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, want, got)
}

func TestRetentionsInJSON(t *testing.T) {
	for text, want := range map[string]time.Duration{`"keep"`: KeepForEver, `"48h"`: 48 * time.Hour} {
		var r RetentionJSON
		require.NoError(t, json.Unmarshal([]byte(text), &r))
		assert.Equal(t, want, time.Duration(r))
		again, err := json.Marshal(r)
		require.NoError(t, err)
		var same RetentionJSON
		require.NoError(t, json.Unmarshal(again, &same))
		assert.Equal(t, r, same)
	}
	for _, text := range []string{`keep`, `"for ever"`, `"0s"`, `"-1h"`, `48`, `null`, `["keep"]`} {
		var r RetentionJSON
		require.Error(t, json.Unmarshal([]byte(text), &r), text)
		assert.Zero(t, r)
	}
}

func TestNounsInJSONRefuseNumbersForIDsAndDurations(t *testing.T) {
	var j Job
	require.Error(t, json.Unmarshal([]byte(`{"id": 7}`), &j))
	require.Error(t, json.Unmarshal([]byte(`{"id": "7", "timeout": 1000}`), &j))
	require.Error(t, json.Unmarshal([]byte(`{"id": "7", "timeout": "soon"}`), &j))
	assert.Zero(t, j, "what was not read is left as it is")
	var f Filter
	require.Error(t, json.Unmarshal([]byte(`{"ids": [7]}`), &f))
	require.NoError(t, json.Unmarshal([]byte(`{"ids": ["7"], "finished_for": "1h"}`), &f))
	assert.Equal(t, Filter{IDs: []int64{7}, FinishedFor: time.Hour}, f)
}
