package jqtest

// KVExclusions returns what no store of package kv can do, with the reasons, for [Adapter]: what engines of that package leave out.
func KVExclusions() map[string]string {
	const (
		noTx   = "a caller's transaction is one of SQL, and such engines have none"
		noKeys = "the kit keeps limit keys for people and filters, and has no index that a limit for each of them needs"
	)
	return map[string]string{
		"Tx/": noTx, "Notify/FollowsTheCommitOfACallersTransaction": noTx,
		"Limits/Keys/": noKeys, "Notify/FollowsRoomOfAKey": noKeys, "Notify/FollowsRoomOfAKeyInOrder": noKeys,
	}
}
