// Package child has what the commands for long runs need to run tests as processes.
package child

import (
	"context"
	"os/exec"
	"strings"
)

// Revision returns the revision of the sources in the folder, and whether they have changed since.
func Revision(ctx context.Context, root string) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty=, changed", "--exclude=*", "--abbrev=12")
	cmd.Dir = root
	output, err := cmd.Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(output))
}
