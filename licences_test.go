package jq_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/release"
)

// A phrase stands in the text of one licence and of no other.
var phrases = []struct{ licence, phrase string }{
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"},
	{"BSD-3-Clause", "endorse or promote products derived from this software without specific prior written permission"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright notice"},
}

// licenceOf names the licences whose words stand in the text, or is empty.
func licenceOf(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	var found []string
	for _, p := range phrases {
		is := strings.Contains(text, strings.ToLower(p.phrase))
		if p.licence == "BSD-2-Clause" && slices.Contains(found, "BSD-3-Clause") {
			is = false // the longer licence begins as the shorter one
		}
		if is && !slices.Contains(found, p.licence) {
			found = append(found, p.licence)
		}
	}
	return strings.Join(found, ", ")
}

// A new dependency of the command is a decision: it is written into the table of licences first.
func TestLicencesOfWhatTheCommandLinks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/licences.md")
	require.NoError(t, err)
	want := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^ |]+\.[^ |]+) \| ([^|]+) \|$`).FindAllStringSubmatch(string(page), -1) {
		want[row[1]] = row[2]
	}
	got := map[string]string{}
	for path, folder := range linked(t) {
		licence := licenceOf(licenceText(t, folder))
		assert.NotEmpty(t, licence, "the licence of %s is none that this test knows: read it, and add its words to the test", path)
		got[path] = licence
	}
	var table strings.Builder
	for _, path := range slices.Sorted(maps.Keys(got)) {
		table.WriteString("| " + path + " | " + got[path] + " |\n")
	}
	assert.Equal(t, want, got, "decide about what differs, then make the table of docs/licences.md this one:\n%s", table.String())
}

// linked are the folders of the modules that the command is linked from on any system of a release.
func linked(t *testing.T) map[string]string {
	t.Helper()
	folders := map[string]string{}
	for _, system := range release.Systems {
		modules, err := release.Linked(t.Context(), ".", system)
		require.NoError(t, err)
		for _, m := range modules {
			folders[m.Path] = m.Dir
		}
	}
	return folders
}

// licenceText is the licence in the folder of a module.
func licenceText(t *testing.T, folder string) string {
	t.Helper()
	for _, name := range []string{"LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			return string(text)
		}
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return ""
}
