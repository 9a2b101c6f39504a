// Package wire defines the JSON of requests and answers of jq's HTTP API. The API and the remote store both use it, so that
// they can not disagree.
//
// Ids and tokens are strings, because many languages read numbers as floats. Durations are written as "1m30s", times in UTC
// as in RFC 3339. Empty fields are left out. A request with an unknown field is refused; unknown fields of an answer are
// ignored.
//
// A document (payload, checkpoint, progress, result) is embedded as JSON. If its exact text has white space outside of
// strings, a second field has that text: payload_text beside payload. If it nests very deep, only that field is there. In a request the
// text wins.
package wire

// Limits, headers and media types that the API and the remote store share.
const (
	// MaxBody is the maximum size of a body: the maximum size of a call, twice because documents can be sent in two forms,
	// and room for the rest of the JSON.
	MaxBody = 2*maxCall + 1<<20

	// MaxBrief is the maximum size of a body without documents: a thousand names with every byte escaped, and room for the
	// rest of the JSON.
	MaxBrief = 2 << 20

	// RequestKeyHeader has the request key of a POST of jobs: if the request is repeated, the server returns its first
	// answer.
	RequestKeyHeader = "Idempotency-Key"

	JSON    = "application/json"
	Problem = "application/problem+json"
	Events  = "text/event-stream"
)

// The paths that the remote store calls. The API has more, for people and dashboards.
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
	PathSettle     = "/v1/settle"     // POST
	PathWaited     = "/v1/waited-for" // POST
	PathFence      = "/v1/fence"      // POST
	PathQueues     = "/v1/queues"     // GET
	PathPause      = "/v1/queues/%s/pause"
	PathResume     = "/v1/queues/%s/resume"
	PathPolicy     = "/v1/queues/%s/policy" // GET, PUT
	PathDue        = "/v1/due"              // GET
	PathActivity   = "/v1/activity"         // GET
	PathWorkers    = "/v1/workers"          // GET
	PathWorker     = "/v1/workers/%s"       // PUT
	PathSchedules  = "/v1/schedules"        // GET
	PathSchedule   = "/v1/schedules/%s"     // PUT, DELETE
	PathFire       = "/v1/schedules/fire"   // POST
	PathGroups     = "/v1/groups"           // GET
	PathGroup      = "/v1/groups/%s"        // GET
	PathGraph      = "/v1/jobs/%d/graph"    // GET
	PathSeal       = "/v1/groups/%s/seal"   // POST
	PathReady      = "/readyz"              // GET
	PathWakeups    = "/v1/wakeups"          // POST: the answer is a stream of events
)
