// Package httpapi serves a job store over HTTP: to programs in any language, to the remote store, and to people.
//
// One table has every call, with its method, its path and the roles that may make it. Package wire defines the requests and
// answers. Errors are problem documents as in RFC 9457. Every test of this package checks that the table, and every request
// and answer it makes, match the OpenAPI document that the API serves.
//
// A claim may wait for its first job. All waiting claims share one subscription to the store's wake-ups, and one poll. A
// wake-up goes to one claim, which passes it on if it has found a job: so an enqueued job wakes one claim, not all of them.
// If the client of a claim has left, its jobs are released.
package httpapi
