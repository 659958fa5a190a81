package gpudriver_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
)

// ldconfigPrints lists the names in this machine's cache.
func ldconfigPrints(tb testing.TB) []string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "/sbin/ldconfig", "-p").Output()
	if err != nil {
		tb.Skip(err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if name, rest, ok := strings.Cut(line, " ("); ok && strings.Contains(rest, " => ") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func FuzzCache(f *testing.F) {
	if own, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		f.Add(own)
	}
	for _, seed := range []string{
		"",
		"ld.so-1.7.0\x00\xff\xff\xff\xff",
		"ld.so-1.7.0\x00\x00\x00\x00\x00glibc-ld.so.cache1.1" + strings.Repeat("\x00", 28),
		"glibc-ld.so.cache1.1\x01\x00\x00\x00" + strings.Repeat("\x00", 24) + strings.Repeat("\xff", 24),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for name := range gpudriver.Names(data) {
			if len(name) > len(data) {
				t.Errorf("%q is longer than the cache", name)
			}
		}
	})
}
