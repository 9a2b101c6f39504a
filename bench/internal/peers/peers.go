// Package peers has jq, the queues it is measured against, and what was written by hand to see where the limit is.
//
// Each peer has the best settings that a careful user would take for speed without giving up what the peer promises. They stand
// beside it, and are printed with the figures.
package peers

import (
	"slices"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// All are the peers, those of a store beside each other.
func All() []peer.Peer {
	return slices.Concat(jqPeers(), limits(), river(), backlitePeers(), goqitePeers(), neoqPeers(), asynqPeers(),
		nodePeers())
}
