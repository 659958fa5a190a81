package cachetest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// site is a plain disk.
func site(t *testing.T) Site {
	t.Helper()
	dir := t.TempDir()
	return Site{Hosts: []string{dir, dir}, Options: cache.Options{Settle: -1, Term: time.Second}}
}

// TestStormNoticesWhatACacheMustNotDo: a cache is sound, and one process does
// to its entries what a cache must not.
func TestStormNoticesWhatACacheMustNotDo(t *testing.T) {
	t.Parallel()
	for sabotage, want := range map[Sabotage]string{
		"":              "",
		sabotageRemove:  "cannot be read while",
		sabotageByte:    "wrong bytes",
		sabotageRefill:  "was replaced by",
		sabotagePublish: "were both published at once",
		sabotageOver:    "cannot be read while",
	} {
		t.Run("sabotage "+string(sabotage), func(t *testing.T) {
			t.Parallel()
			s := site(t)
			s.Storm = Storm{Processes: 4, For: 300 * time.Millisecond}
			sum, wrong := rage(t, s, sabotage)
			t.Log(sum)
			all := strings.Join(wrong, "\n")
			if want == "" && all != "" || !strings.Contains(all, want) {
				t.Errorf("it says %q, want %q", all, want)
			}
		})
	}
}

func TestPlainDisk(t *testing.T) {
	t.Parallel()
	Run(t, site(t))
}
