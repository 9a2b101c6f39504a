package toy

import (
	"fmt"
	"os"
	"testing"
)

func count(t *testing.T, what string, n int) {
	f, err := os.OpenFile(os.Getenv("JQ_COUNTS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "{\"what\":%q,\"n\":%d}\n", what, n)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStorm(t *testing.T) {
	t.Log("the seed is", os.Getenv("JQ_CHAOS_SEED"), "with", os.Getenv("JQ_TOY"))
	count(t, "kills", 2)
	count(t, "kills", 1)
	if _, err := os.Stat("faulty"); err == nil {
		count(t, "lost", 1)
		t.Error("job 7 is lost")
	}
}

func TestEmpty(t *testing.T) {
	if _, err := os.Stat("empty"); err == nil {
		t.Skip("the disk is missing")
	}
}

func TestSlow(t *testing.T) {
	count(t, "kills", 1)
	f, err := os.OpenFile("pipe", os.O_WRONLY, 0) // until somebody reads
	if err == nil {
		_, err = f.WriteString("x")
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err = os.Open("other") // until somebody writes
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}
