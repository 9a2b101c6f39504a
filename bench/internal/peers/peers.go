// Package peers has jq, the queues that it is compared with, and handwritten queues that show the limit.
//
// Each peer has the fastest settings that a careful user would choose without giving up the peer's guarantees. They are listed
// with the peer and printed with the figures.
package peers

import (
	"slices"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// All returns the peers, grouped by store.
func All() []peer.Peer {
	return slices.Concat(jqPeers(), limits(), river(), backlitePeers(), goqitePeers(), neoqPeers(), asynqPeers(),
		nodePeers())
}
