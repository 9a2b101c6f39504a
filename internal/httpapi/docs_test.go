package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// theDocs asks for the page, and returns it with the entities of HTML resolved too.
func theDocs(t *testing.T) (page answered, text string) {
	w := newWorld(t, Options{})
	assert.Equal(t, "docs", w.ask("GET", "/", "").header.Get("Location"))
	page = w.ask("GET", "/docs", "")
	require.Equal(t, 200, page.status)
	return page, html.UnescapeString(page.text)
}

// parts returns what stands between the beginnings of a page's elements, by the first submatch.
func parts(page string, begins *regexp.Regexp) map[string]string {
	all := map[string]string{}
	found := begins.FindAllStringSubmatchIndex(page, -1)
	for i, at := range found {
		end := len(page)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		all[page[at[2]:at[3]]] += page[at[0]:end]
	}
	return all
}

// TestDocsHasEachCallOnce: in the group of its tag, with what is documented of it.
func TestDocsHasEachCallOnce(t *testing.T) {
	page, text := theDocs(t)
	groups := parts(text, regexp.MustCompile(`<section id="group-([a-z]+)">`))
	var tags []string
	for _, tag := range theBook().doc["tags"].([]any) {
		tag := tag.(map[string]any)
		tags = append(tags, tag["name"].(string))
		assert.Contains(t, groups[strings.ToLower(tag["name"].(string))], "<p>"+tag["description"].(string)+"</p>")
	}
	for key, op := range theBook().operations() {
		method, path, _ := strings.Cut(key, " ")
		id, tagged := op["operationId"].(string), op["tags"].([]any)
		require.Len(t, tagged, 1, id)
		require.Contains(t, tags, tagged[0], id)
		assert.Equal(t, 1, strings.Count(text, `<article id="`+id+`"`), id)
		call := parts(groups[strings.ToLower(tagged[0].(string))], regexp.MustCompile(`<article id="([a-z-]+)"`))[id]
		require.NotEmpty(t, call, "%s stands in the group %s", id, tagged[0])
		assert.Contains(t, call, "<h3>"+op["summary"].(string)+" <a")
		assert.Contains(t, call, `<b class="`+method+`">`+method+`</b> <code>`+path+`</code>`)
		for _, role := range rolesOf(op) {
			assert.Contains(t, call, "<li>"+string(role)+"</li>")
		}
		if op["x-roles"] == nil {
			assert.Contains(t, call, "<li>no token needed</li>")
		}
		for status := range op["responses"].(map[string]any) {
			assert.Contains(t, call, ">"+spelled(status), id)
		}
		assert.Contains(t, page.text, `<li><a href="#`+id+`">`, "the contents name it")
	}
	for _, name := range []string{"Unauthorized", "Forbidden", "TooMany", "Unavailable"} {
		said := theBook().at([]string{"components", "responses", name, "description"}).(string)
		assert.Equal(t, 1, strings.Count(text, strings.ReplaceAll(plain(said), "  ", " ")), "%s is explained once", name)
	}
}

// plain returns a description as the page has it.
func plain(text string) string {
	return regexp.MustCompile("`([^`]*)`").ReplaceAllString(text, "<code>$1</code>")
}

// TestDocsShowsEverySchema: each has one table or one line, in which each property has a meaning; and the page has no text but that.
func TestDocsShowsEverySchema(t *testing.T) {
	_, text := theDocs(t)
	for name, s := range theBook().at([]string{"components", "schemas"}).(map[string]any) {
		assert.Equal(t, 1, strings.Count(text, ` id="schema-`+name+`"`), "%s is shown once", name)
		properties(t, name, s.(map[string]any), func(path, name string, p map[string]any) {
			said, _ := p["description"].(string)
			assert.NotEmpty(t, said, "%s.%s needs a description in openapi.json", path, name)
			assert.Contains(t, text, plain(said), "%s.%s", path, name)
			values, _ := p["enum"].([]any)
			for _, value := range values {
				assert.Contains(t, text, "<code>"+value.(string)+"</code>", "%s.%s", path, name)
			}
		})
		assertExtends(t, name, s.(map[string]any))
	}
	assert.NotContains(t, text, "$ref")
	assert.NotContains(t, text, `"properties"`)
}

// properties calls do for each property of a schema and of the objects within it.
func properties(t *testing.T, path string, s map[string]any, do func(path, name string, p map[string]any)) {
	all, _ := s["properties"].(map[string]any)
	for name, p := range all {
		do(path, name, p.(map[string]any))
		properties(t, path+"."+name, p.(map[string]any), do)
	}
	if items, are := s["items"].(map[string]any); are {
		properties(t, path+"[]", items, do)
	}
}

// assertExtends: what the page leaves out of a table stands in another.
func assertExtends(t *testing.T, name string, s map[string]any) {
	base, extends := s["x-extends"].(string)
	if !extends {
		return
	}
	for property, want := range theBook().at([]string{"components", "schemas", base, "properties"}).(map[string]any) {
		assert.Equal(t, want, s["properties"].(map[string]any)[property], "%s.%s is as in %s", name, property, base)
	}
}

// TestDocsLinks: each anchor is there once, and each link leads to one. The headings are in order.
func TestDocsLinks(t *testing.T) {
	page, _ := theDocs(t)
	ids := map[string]int{}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page.text, -1) {
		ids[id[1]]++
	}
	for id, n := range ids {
		assert.Equal(t, 1, n, id)
	}
	for _, link := range regexp.MustCompile(` href="([^"]*)"`).FindAllStringSubmatch(page.text, -1) {
		if to, within := strings.CutPrefix(link[1], "#"); within {
			assert.Contains(t, ids, to)
		} else {
			assert.Contains(t, []string{"./", "openapi.json"}, link[1], "all others are relative, for a proxy with any path")
		}
	}
	level := 0
	for _, h := range regexp.MustCompile(`<h([1-6])`).FindAllStringSubmatch(page.text, -1) {
		next := int(h[1][0] - '0')
		assert.LessOrEqual(t, next, level+1, "no level is left out")
		level = next
	}
	for _, element := range []string{"<nav", "<main", "<h1", `class="skip" href="#main"`, `<html lang="en">`} {
		assert.Equal(t, 1, strings.Count(page.text, element), element)
	}
	assert.Contains(t, page.text, `name="viewport" content="width=device-width`, "for phones")
}

// TestDocsShowsEveryExample: the page has each with its blanks in other places at most.
func TestDocsShowsEveryExample(t *testing.T) {
	_, text := theDocs(t)
	squeezed := strings.Join(strings.Fields(text), "")
	for key, op := range theBook().operations() {
		method, path, _ := strings.Cut(key, " ")
		at := []string{"paths", path, strings.ToLower(method)}
		contents := []any{theBook().at(append(slices.Clone(at), "requestBody", "content"))}
		for status, r := range op["responses"].(map[string]any) {
			if status < "400" {
				contents = append(contents, r.(map[string]any)["content"])
			}
		}
		for _, content := range contents {
			kinds, _ := content.(map[string]any)
			for kind, m := range kinds {
				shown, has := m.(map[string]any)["example"]
				if !has {
					assert.Contains(t, []string{"openapi", "docs"}, op["operationId"], "%s has no example in %s", key, kind)
					continue
				}
				want, is := shown.(string)
				if !is {
					want = compacted(t, path, strings.ToLower(method), shown)
				}
				assert.Contains(t, squeezed, strings.Join(strings.Fields(want), ""), key)
			}
		}
	}
}

// compacted returns the example with its members in the order of the file, which a map has lost.
func compacted(t *testing.T, path, method string, shown any) string {
	var doc document
	require.NoError(t, json.Unmarshal(openapiText, &doc))
	op := doc.Paths[path][method]
	contents := []ordered[media]{op.RequestBody.Content}
	for _, r := range op.Responses {
		contents = append(contents, r.Value.Content)
	}
	want, err := json.Marshal(shown)
	require.NoError(t, err)
	for _, content := range contents {
		for _, m := range content {
			var got any
			if json.Unmarshal(m.Value.Example, &got) != nil {
				continue
			}
			again, err := json.Marshal(got)
			require.NoError(t, err)
			if string(again) == string(want) {
				var out bytes.Buffer
				require.NoError(t, json.Compact(&out, m.Value.Example))
				return out.String()
			}
		}
	}
	t.Fatalf("%s %s has no example %s", method, path, want)
	return ""
}

// TestDocsEscapes: what stands in the document is text on the page, also where it looks like markup.
func TestDocsEscapes(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)>"'&amp;`
	var doc any
	require.NoError(t, json.Unmarshal(openapiText, &doc))
	marked := 0
	mark(doc, evil, &marked)
	require.Greater(t, marked, 200)
	text, err := json.Marshal(doc)
	require.NoError(t, err)
	page, err := renderPage(text)
	require.NoError(t, err)
	assert.NotContains(t, string(page), "<img")
	assert.NotContains(t, string(page), "&amp;amp;amp;", "escaped once")
	assert.Greater(t, strings.Count(html.UnescapeString(string(page)), evil), 200)
	assert.NotContains(t, string(page), "ZgotmplZ")
}

// mark adds a text to whatever is text for people, and to the examples.
func mark(v any, text string, n *int) {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			said, is := child.(string)
			if is && slices.Contains([]string{"description", "summary", "title", "to", "worker"}, key) {
				v[key] = said + " " + text
				*n++
			}
			mark(child, text, n)
		}
	case []any:
		for _, child := range v {
			mark(child, text, n)
		}
	}
}

// TestDocsRefusesADanglingReference: it is an error, and not a hole in the page.
func TestDocsRefusesADanglingReference(t *testing.T) {
	for _, of := range []string{"schemas/Outcome", "schemas/ID", "schemas/Event", "responses/Conflict"} {
		broken := bytes.ReplaceAll(openapiText, []byte(`"#/components/`+of+`"`), []byte(`"#/components/`+of+`Gone"`))
		_, err := renderPage(broken)
		assert.ErrorContains(t, err, of+"Gone")
	}
}

// TestDocsRunsNothing: the page loads and runs nothing but its own style.
func TestDocsRunsNothing(t *testing.T) {
	page, _ := theDocs(t)
	_, rest, _ := strings.Cut(page.text, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	policy := page.header.Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'", "the style that is allowed is this one")
	assert.NotContains(t, policy, "unsafe")
	for _, outside := range []string{"<script", "src=", "url(", "@import", "style=", "ZgotmplZ", "<link"} {
		assert.NotContains(t, page.text, outside)
	}
}

// TestLayout: what fits on a line is on one, members keep their order, and the text is the same document.
func TestLayout(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                 `{}`,
		`[]`:                                 `[]`,
		`{"b":1,"a":{"c":[1.50,"x\u00e9"]}}`: `{"b": 1, "a": {"c": [1.50, "x\u00e9"]}}`,
		`{"jobs":[{"id":"1","token":"1"},{"id":"2"}]}`:           "{\n  \"jobs\": [\n    {\"id\": \"1\", \"token\": \"1\"},\n    {\"id\": \"2\"}\n  ]\n}",
		`{"payload":{"to":[1,2]},"n":[1,2]}`:                     `{"payload": {"to":[1,2]}, "n": [1, 2]}`,
		`["12345678901234567890123456789012345678901234567890"]`: "[\n  \"12345678901234567890123456789012345678901234567890\"\n]",
	} {
		got := layout(json.RawMessage(text), 44)
		assert.Equal(t, want, got)
		assert.JSONEq(t, text, got)
	}
}

// TestDocsColours: text has the contrast of level AA on whatever it stands on, in both schemes.
func TestDocsColours(t *testing.T) {
	colours := map[string][2]string{}
	for _, c := range regexp.MustCompile(`--(\w+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`).FindAllStringSubmatch(docsStyle, -1) {
		colours[c[1]] = [2]string{c[2], c[3]}
	}
	require.Contains(t, colours, "paper")
	require.Contains(t, colours, "soft")
	for _, name := range slices.Sorted(maps.Keys(colours)) {
		if name == "line" || name == "paper" || name == "soft" {
			continue // nothing is written in it
		}
		for scheme, of := range []string{"light", "dark"} {
			for _, under := range []string{"paper", "soft"} {
				ratio := contrast(t, colours[name][scheme], colours[under][scheme])
				assert.GreaterOrEqual(t, ratio, 4.5, "%s on %s, %s: %.2f", name, under, of, ratio)
			}
		}
	}
	rest := regexp.MustCompile(`(?s):root \{.*?\n\}`).ReplaceAllString(docsStyle, "")
	assert.NotRegexp(t, `#[0-9a-fA-F]{3,8}\b|rgb\(`, rest, "every colour is one of these")
	assert.Contains(t, docsStyle, "color-scheme: light dark")
}

// contrast is the ratio of WCAG 2.1.
func contrast(t *testing.T, a, b string) float64 {
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, colour string) (sum float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		part, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		require.NoError(t, err)
		v := float64(part) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}

// TestAnswersAreNotKept: neither by browsers nor by proxies, and their type is not guessed.
func TestAnswersAreNotKept(t *testing.T) {
	w := newWorld(t, Options{})
	assert.Empty(t, w.ask("HEAD", "/v1/stats", "").text)
	for _, path := range []string{"/v1/stats", "/docs", "/nowhere"} {
		got := w.ask("GET", path, "")
		assert.Equal(t, "no-store", got.header.Get("Cache-Control"))
		assert.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
	}
}
