package cachetest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// site is a plain disk.
func site(t *testing.T) Site {
	t.Helper()
	dir := t.TempDir()
	return Site{Hosts: []string{dir, dir}, Options: cache.Options{Settle: -1, Term: 300 * time.Millisecond}}
}

// TestStormNoticesWhatACacheMustNotDo: the cache is sound, but one process damages its entries.
func TestStormNoticesWhatACacheMustNotDo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: ten storms take many seconds")
	}
	for sabotage, want := range map[sabotage]string{
		"":               "",
		sabotageRemove:   "cannot be read while",
		sabotageByte:     "wrong bytes",
		sabotageRefill:   "was replaced by",
		sabotagePublish:  "were both published at once",
		sabotageDie:      "after process 1 had died",
		sabotageQuota:    "exceeded by more than one object",
		sabotagePin:      "pins are back to zero",
		sabotageStuck:    "every key can be had",
		sabotageLeftover: "there are 1 files still",
	} {
		t.Run("sabotage "+string(sabotage), func(t *testing.T) {
			t.Parallel()
			s := site(t)
			s.Storm = Storm{Processes: 3, Gets: 20}
			limit := testenv.WaitLimit // until the leftovers of dead fills are swept
			if sabotage != "" {
				limit = time.Second // a check that cannot succeed need not last longer
			}
			sum, wrong := runAndJudge(t, s, rehearsal{rehearses: true, sabotage: sabotage, keys: 10, limit: limit})
			t.Log(sum)
			all := strings.Join(wrong, "\n")
			if want == "" && all != "" || !strings.Contains(all, want) {
				t.Errorf("it says %q, want %q", all, want)
			}
		})
	}
}
