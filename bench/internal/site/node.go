package site

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed npm
var npm embed.FS

// nodeFolder returns the folder with the installed npm packages and the script that drives them.
func (s *Site) nodeFolder(ctx context.Context) (string, error) {
	if s.node != "" {
		return s.node, nil
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", &Absence{program + " is not installed"}
		}
	}
	if err := os.CopyFS(s.folder, npm); err != nil {
		return "", err
	}
	folder := filepath.Join(s.folder, "npm")
	install := exec.CommandContext(ctx, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund")
	install.Dir = folder
	if said, err := install.CombinedOutput(); err != nil {
		return "", &Absence{fmt.Sprintf("npm install: %v: %s", err, strings.TrimSpace(string(said)))}
	}
	s.node = folder
	return folder, nil
}
