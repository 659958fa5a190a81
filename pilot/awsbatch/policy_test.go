package awsbatch_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// policyOfThePage returns the operations that the policy in docs/aws-batch.md permits, in small letters and in order.
func policyOfThePage(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "aws-batch.md"))
	testenv.Must(t, err)
	text := regexp.MustCompile("(?s)```json\n(\\{\n    \"Version\": .*?)```").FindSubmatch(page)
	if text == nil {
		t.Fatal("docs/aws-batch.md has no policy")
	}
	var policy struct {
		Statement []struct{ Action any }
	}
	testenv.Must(t, json.Unmarshal(text[1], &policy))
	var all []string
	add := func(action string) {
		_, operation, _ := strings.Cut(action, ":")
		all = append(all, strings.ToLower(operation))
	}
	for _, s := range policy.Statement {
		switch actions := s.Action.(type) {
		case string:
			add(actions)
		case []any:
			for _, a := range actions {
				add(a.(string))
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestPolicyOfThePageHasEachCallAndNoOther does all that a manager does: it starts workers, lists them by name and by state,
// asks about a queue in which one waits, shows instances, reads a log, ends one, and checks an account.
func TestPolicyOfThePageHasEachCallAndNoOther(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	now := &clock{time.Now()}
	b.Now = now.now
	p, waits := start(t, b), start(t, b)
	c.Run(p.Name, "hello")
	waiting(c, waits.Name, "")
	now.Time = now.Add(6 * time.Minute)
	var shown []pilot.Pilot
	for _, p := range pilots(t, b) {
		shown = append(shown, p)
	}
	testenv.Must(t, b.Locate(t.Context(), shown))
	testenv.Must(t, b.WriteLog(t.Context(), io.Discard, p, false))
	testenv.Must(t, b.Stop(t.Context(), p))
	pilots(t, b)
	c.AddEnded("codalab-batch-cpu", 600, b.NewName)
	next := open(c.URL, "codalab")
	pilots(t, next)
	pilots(t, next)
	_, err := next.Logged(t.Context())
	testenv.Must(t, err)
	b.Check(t.Context())
	if diff := cmp.Diff(policyOfThePage(t), c.Operations()); diff != "" {
		t.Errorf("-of the policy +asked for\n%s", diff)
	}
}
