package main

import "github.com/spf13/cobra"

func (a *app) jobs() *cobra.Command {
	return a.group("jobs", "list, show, requeue, cancel and remove jobs",
		a.jobsLs(), a.jobsShow(), a.jobsRequeue(), a.jobsCancel(), a.jobsRm())
}
