package chaos

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSoak(t *testing.T) {
	for _, name := range []string{"memory", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			text := "ok   memory, soaked for " + os.Getenv("JQ_SOAK_LENGTH") + "\n"
			if _, err := os.Stat("faulty " + name); err == nil {
				text = "FAIL memory\n"
				t.Fail()
			}
			if err := os.WriteFile(filepath.Join(os.Getenv("JQ_SOAK_FOLDER"), name+".txt"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}
