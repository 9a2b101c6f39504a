package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A composition is what the tests read of compose.yaml.
type composition struct {
	Services map[string]struct {
		Build       struct{ Context, Dockerfile string }
		Command     []string
		Environment map[string]string
		Ports       []string
		Volumes     []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck map[string]any
	}
	Volumes map[string]any
}

// What can be checked of the file without Docker: its parts fit together, and the shop understands what it is given.
func TestTheCompositionFitsTogether(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	var c composition
	require.NoError(t, yaml.Unmarshal(text, &c))
	shop, server := c.Services["shop"], c.Services["postgres"]

	o, err := parse(shop.Command, func(name string) string { return shop.Environment[name] })
	require.NoError(t, err)
	assert.Equal(t, []string{"127.0.0.1" + o.addr + o.addr}, shop.Ports, "the port of the shop")
	where, err := url.Parse(o.database)
	require.NoError(t, err)
	password, _ := where.User.Password()
	assert.Equal(t, map[string]string{
		"POSTGRES_USER": where.User.Username(), "POSTGRES_PASSWORD": password, "POSTGRES_DB": strings.TrimPrefix(where.Path, "/"),
	}, server.Environment)
	assert.Contains(t, c.Services, where.Hostname())
	assert.Equal(t, "service_healthy", shop.DependsOn[where.Hostname()].Condition)
	assert.NotEmpty(t, server.Healthcheck)
	volume, _, _ := strings.Cut(server.Volumes[0], ":")
	assert.Contains(t, c.Volumes, volume)
	assert.FileExists(t, filepath.Join(shop.Build.Context, shop.Build.Dockerfile))
}

// The Dockerfile builds the shop without cgo, and nothing that the shop needs must be missing then. Building it once more would take minutes.
func TestTheDockerfileNamesTheShop(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	build := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 go build -trimpath -o (\S+) (\S+)$`).FindStringSubmatch(string(text))
	require.NotNil(t, build)
	assert.Contains(t, string(text), "\nENTRYPOINT [\""+build[1]+"\"]\n")
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", build[2])
	list.Dir, list.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	packages, err := list.CombinedOutput()
	require.NoError(t, err, "%s", packages)
	assert.True(t, strings.HasSuffix(string(packages), "/examples/shop\n"), "the last package is the program")
}
