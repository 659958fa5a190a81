package testsite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

var members = flag.Int("members", 40, "the members of the sweep of TestSweepOfALaptopThatClosesRunsEachMemberOnce, a multiple of 5")

// closes runs cl until its end or the end of a time, when SIGKILL ends it, as when a laptop is closed. It reports whether
// cl ended by itself, and its output.
func closes(t *testing.T, s *testsite.Site, after time.Duration, args ...string) (out string, whole bool) {
	t.Helper()
	var all bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	err := s.Stream(ctx, &all, append([]string{filepath.Join(testsite.Base, "bin", "cl")}, args...)...)
	if err != nil && ctx.Err() == nil {
		t.Fatalf("cl %s: %v", strings.Join(args, " "), err)
	}
	return all.String(), err == nil
}

// A laptop is closed again and again while cl makes a sweep and waits for it. The same commands, given again, bring it to its
// end: each member has one run, which begins once, and the best one is found.
func TestSweepOfALaptopThatClosesRunsEachMemberOnce(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: often("")})
	const command = `echo '{"epoch": 1, "loss": 0.'$((100 + {lr} * {seed}))'}' > log.jsonl; echo '{"acc": 0.'$((100 + {lr} * {seed}))'}' > stats.json`
	sweep := []string{"run", "--request-queue", "cpu", "--sweep", "many", "--each", fmt.Sprintf("lr=1..%d", *members/5), "--each", "seed=1..5", "--max-parallel", "20", command}
	made := false
	for after := 10 * time.Millisecond; !made; after += after / 2 {
		_, made = closes(t, s, after, sweep...)
		t.Logf("cl run, closed after %s: %t, %s bundles", after, !made, cl(t, s, "search", ".mine", ".count"))
	}
	ended := false
	for after := time.Second; !ended; after *= 2 {
		var out string
		out, ended = closes(t, s, after, "wait", "many")
		t.Logf("cl wait, closed after %s: %t, %d ready", after, !ended, strings.Count(out, "0x"))
		if ended && strings.Count(out, "0x") != *members {
			t.Errorf("cl wait printed %s", out)
		}
	}
	var shown struct {
		Members []struct {
			UUID  string `json:"uuid"`
			State string `json:"state"`
		} `json:"members"`
	}
	text := cl(t, s, "sweep", "show", "many", "--json")
	testenv.Must(t, json.Unmarshal([]byte(text), &shown))
	var bundles []string
	for _, m := range shown.Members {
		bundles = append(bundles, m.UUID)
		if began := len(begins(t, s, m.UUID)); m.State != "ready" || began != 1 {
			t.Errorf("%s is %s, and began %d times", m.UUID, m.State, began)
		}
	}
	slices.Sort(bundles)
	if n := len(slices.Compact(bundles)); n != *members {
		t.Errorf("%d members: %s", n, text)
	}
	if all := cl(t, s, "search", ".mine", ".count"); all != fmt.Sprint(*members) {
		t.Errorf("there are %s bundles", all)
	}
	best := strings.Fields(cl(t, s, "best", "many", "/stats.json:acc", "-u"))
	if len(best) != 1 || cl(t, s, "cat", best[0]+"/stats.json") != fmt.Sprintf(`{"acc": 0.%d}`, 100+*members) {
		t.Errorf("the best is %q", best)
	}
	cl(t, s, "sweep", "rm", "many")
	if all := cl(t, s, "search", ".mine", ".count"); all != "0" {
		t.Errorf("after sweep rm there are %s bundles", all)
	}
}
