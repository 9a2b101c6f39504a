package jqtest

// KVExclusions returns what no store of package kv can do, with the reasons, for [Adapter]: what engines of that package leave out.
func KVExclusions() map[string]string {
	const noTx = "a caller's transaction is one of SQL, and such engines have none"
	return map[string]string{
		"Tx/": noTx, "Notify/FollowsTheCommitOfACallersTransaction": noTx,
	}
}
