package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// axe returns the script of axe-core, from the file that scripts/need-browser has downloaded. The error is fs.ErrNotExist without one.
var axe = sync.OnceValues(func() (string, error) {
	pin, err := os.ReadFile("axe-core.sha512")
	if err != nil {
		return "", err
	}
	sum, name, _ := strings.Cut(strings.TrimSpace(string(pin)), "  ")
	packed, err := os.ReadFile(filepath.Join("..", "..", ".cache", name))
	if err != nil {
		return "", err
	}
	if got := sha512.Sum512(packed); hex.EncodeToString(got[:]) != sum {
		return "", fmt.Errorf("%s is not the file that axe-core.sha512 pins: delete it", name)
	}
	return unpack(packed, "package/axe.min.js")
})

// unpack returns a file of a package of npm.
func unpack(packed []byte, name string) (string, error) {
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(plain); ; {
		file, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if file.Name == name {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}

// needAxe returns the script, or skips the test.
func needAxe(t *testing.T) string {
	t.Helper()
	script, err := axe()
	if errors.Is(err, fs.ErrNotExist) {
		need(t, "axe-core is not in .cache: run scripts/test-all once, which downloads it")
	}
	require.NoError(t, err)
	return script
}

// accessible checks the page as it is now against the rules of WCAG 2.1, levels A and AA.
func (p *tab) accessible() {
	p.t.Helper()
	for _, violation := range p.violations() {
		assert.Fail(p.t, "an accessibility rule is broken", violation)
	}
}

// violations returns which rules the page breaks now, and where.
func (p *tab) violations() []string {
	p.t.Helper()
	script := needAxe(p.t)
	if !eval[bool](p, `"axe" in window`) {
		p.do(chromedp.Evaluate[chromedp.Void](script))
	}
	return eval[[]string](p, `axe.run(document, {
		runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
		resultTypes: ["violations"],
	}).then(result => result.violations.flatMap(v => v.nodes.map(n => v.id + ": " + v.help + "\n" + n.html + "\n" + n.failureSummary)))`)
}

// fits checks that the page does not scroll sideways.
func (p *tab) fits() {
	p.t.Helper()
	assert.Empty(p.t, p.tooWide(), "the page is wider than the window")
}

// tooWide returns the width that the page has beyond the window, with the elements that stand there.
func (p *tab) tooWide() []string {
	p.t.Helper()
	return eval[[]string](p, fmt.Sprintf(`(() => {
		const root = document.documentElement, room = Math.min(root.clientWidth, %d);
		if (root.scrollWidth <= room) return [];
		return [root.scrollWidth - room + " pixels", ...[...document.body.querySelectorAll("*")]
			.filter(e => e.getBoundingClientRect().right > room + 0.5).map(e => e.outerHTML.slice(0, 160)).slice(0, 8)];
	})()`, p.look.width))
}
