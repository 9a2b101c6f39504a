package cli

import "github.com/spf13/cobra"

func (a *app) jobs() *cobra.Command {
	return a.group("jobs", "list, show, requeue, reschedule, cancel, remove, export and import jobs",
		a.jobsLs(), a.jobsShow(), a.jobsRequeue(), a.jobsReschedule(), a.jobsCancel(), a.jobsRm(), a.jobsExport(), a.jobsImport())
}
