package testsite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// sickNode is a cl-worker that cannot be run on one node: the first on which it is tried, whose name a
// link in the directory %[1]s keeps.
const sickNode = `#!/bin/sh
ln -s "$SLURMD_NODENAME" %[1]s/node 2>/dev/null
[ "$SLURMD_NODENAME" != "$(readlink %[1]s/node)" ] || { echo 'cl-worker: No such file or directory'; exit 127; }
exec ` + testsite.Base + `/bin/cl-worker "$@"
`

func TestI10NodeThatFailsEveryJobIsAvoidedOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	dir := testenv.SharedDir(t)
	if err := os.Chmod(dir, 0o777); err != nil { // jobs are another user's
		t.Fatal(err)
	}
	worker := filepath.Join(dir, "cl-worker")
	if err := os.WriteFile(worker, fmt.Appendf(nil, sickNode, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	s := own(t, testsite.Options{Config: "worker = \"" + worker + "\"\n" + often("")})
	var bundles []string
	for range 5 {
		bundles = append(bundles, run(t, s, "cpu", "true"))
	}
	elsewhere := 0
	for _, bundle := range bundles {
		if state := ended(t, s, bundle); state != "ready" {
			t.Errorf("state %s: %s", state, field(t, s, bundle, "failure_message"))
		}
		for _, h := range explain(t, s, bundle).History {
			if strings.Contains(h.Reason, "ended") && strings.Contains(h.Reason, "cl-worker: No such file or directory") {
				elsewhere++
			}
		}
	}
	if elsewhere == 0 {
		t.Error("no attempt was on the node that fails every job")
	}
}

func TestI10AccountThatIsTakenAwayFailsNoBundle(t *testing.T) {
	t.Parallel()
	need(t)
	account := fmt.Sprintf("cltest%d", os.Getpid())
	change := func(what string) func() {
		return func() {
			testenv.Await(t, what+" the account", func() bool { // not while the database believes that a job of it is active
				return tryAdmin(t, "sacctmgr", "--immediate", what, "user", testsite.User, "account="+account) == nil
			})
		}
	}
	give, take := change("add"), change("delete")
	admin(t, "sacctmgr", "--immediate", "add", "account", account)
	t.Cleanup(func() { admin(t, "sacctmgr", "--immediate", "delete", "account", account) })
	give()
	t.Cleanup(take)
	s := own(t, testsite.Options{Config: often(""), Queues: "\n[queue.cpu]\ndefault = true\npartition = \"cpu\"\naccount = \"" + account + "\"\ndefault_time = \"1h\"\n"})
	if bundle := run(t, s, "cpu", "true"); ended(t, s, bundle) != "ready" {
		t.Fatalf("with the account: %s", field(t, s, bundle, "failure_message"))
	}
	take()
	testenv.Await(t, "Slurm knows that the account is gone", func() bool {
		_, err := s.Run(t.Context(), "sbatch", "--test-only", "--account="+account, "--wrap=true")
		return err != nil
	})
	var bundles []string
	for range 3 {
		bundles = append(bundles, run(t, s, "cpu", "true"))
	}
	for _, bundle := range bundles {
		testenv.Await(t, "it waits for its queue", func() bool {
			return strings.HasPrefix(field(t, s, bundle, "run_status"), "Waiting: Slurm takes no job of queue cpu since ")
		})
	}
	give()
	for _, bundle := range bundles {
		if state := ended(t, s, bundle); state != "ready" {
			t.Errorf("state %s: %s", state, field(t, s, bundle, "failure_message"))
		}
	}
}
