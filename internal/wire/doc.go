// Package wire is how requests and answers look between jq's HTTP API and those who speak to it: the words of the contract as
// JSON. The API and the store that works over it share it, so that they can not disagree.
//
// Ids and tokens are strings, for many languages read numbers as floats. Durations are written as "1m30s", times as RFC 3339
// in UTC. What is empty is left out. In a request a field that is not known is refused, in an answer it is passed over.
//
// A document (payload, checkpoint, progress, result) stands in its place as JSON. Where blanks outside of strings make its
// exact text another one, a twin has that text: payload beside payload_text. In requests the twin wins.
package wire

// What both sides need to know of a call before it is read.
const (
	// MaxBody is how large a body may be: what a call may weigh, twice for the twins of documents, and the words around it.
	MaxBody = 2*maxCall + 1<<20

	// MaxBrief is how large a body without documents may be: a thousand names, with each byte escaped, and the words around them.
	MaxBrief = 2 << 20

	// RequestKeyHeader makes a repeated POST of jobs return the first answer.
	RequestKeyHeader = "Idempotency-Key"

	JSON    = "application/json"
	Problem = "application/problem+json"
	Events  = "text/event-stream"
)

// The calls that a store makes. People and dashboards have more of them.
const (
	PathJobs       = "/v1/jobs"       // POST: enqueue
	PathJob        = "/v1/jobs/"      // GET, with the id
	PathList       = "/v1/jobs/list"  // POST
	PathCount      = "/v1/jobs/count" // POST
	PathBulk       = "/v1/jobs/bulk"  // POST
	PathClaim      = "/v1/claim"      // POST
	PathAck        = "/v1/ack"        // POST
	PathNAck       = "/v1/nack"       // POST
	PathExtend     = "/v1/extend"     // POST
	PathCheckpoint = "/v1/checkpoint" // POST
	PathRecover    = "/v1/recover"    // POST
	PathFence      = "/v1/fence"      // POST
	PathQueues     = "/v1/queues"     // GET
	PathPause      = "/v1/queues/%s/pause"
	PathResume     = "/v1/queues/%s/resume"
	PathPolicy     = "/v1/queues/%s/policy" // GET, PUT
	PathDue        = "/v1/due"              // GET
	PathWorkers    = "/v1/workers"          // GET
	PathWorker     = "/v1/workers/%s"       // PUT
	PathReady      = "/readyz"              // GET
	PathWakeups    = "/v1/wakeups"          // POST: answered by events
)
