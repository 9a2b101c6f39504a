// Package browser tests the pages of jobq serve in a real Chromium. It has tests only.
//
// It is a module of its own, so that jq does not depend on the library that drives the browser. A test serves a store by the command
// itself, fills it through the library and over HTTP, and uses the pages as a person does: it finds elements by their role and name,
// clicks, types, and then looks into the store. Each open page is watched: errors in the console, violations of the content security
// policy, requests to other hosts and dialogs fail the test.
//
// Without Chromium the tests are skipped, unless JQ_BROWSER=required is set. scripts/test-all sets it, after it has installed what is
// missing.
package browser
