// Package httpapi serves a store of jobs over HTTP: to programs in any language, to the store that works over it, and to people.
//
// Every call stands in one table, with its method, its path and who may make it. What it takes and gives are the forms of package
// wire. What goes wrong is answered by a problem document of RFC 9457. The document of OpenAPI that the API serves is held to the
// table, and to what really goes over the wire, by every test of this package.
//
// A claim may wait for its first job. Those that wait share one subscription to the store's wake-ups and one poll, and hand them
// on from one to the next: an enqueued job wakes one claim, not all of them. What was claimed for a client that has vanished is
// released.
package httpapi
