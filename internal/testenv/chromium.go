package testenv

import (
	"os/exec"
	"testing"
)

// Chromium returns the path of Debian's Chromium.
func Chromium(tb testing.TB) string {
	tb.Helper()
	need(tb, chromium, nil)
	path, err := exec.LookPath("chromium")
	need(tb, chromium, err)
	return path
}
