package sbatch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recordedVersions are the Slurms of which testdata has recorded names.
func recordedVersions() []string { return []string{"22.05.8", "24.11.5", "26.05.5"} }

// recordedNames returns the names of reasons, or of states, that a Slurm has.
func recordedNames(t *testing.T, version, kind string) (names []string) {
	t.Helper()
	for line := range strings.Lines(recordedOf(t, version, "reasons.txt")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), kind+" "); ok {
			names = append(names, name)
		}
	}
	return names
}

// textReasons are reasons that squeue shows in place of a name.
func textReasons() []string {
	return []string{
		"Job's account not permitted to use this partition (gpu allows lab not nlp)",
		"Job's_QOS_not_permitted_to_use_this_partition_(gpu_allows_normal_not_limited)",
		"User's group not permitted to use this partition",
		"ReqNodeNotAvail, UnavailableNodes:n[1-2]",
		"ReqNodeNotAvail, Reserved for maintenance",
		"ReqNodeNotAvail, May be reserved for other job",
		"ReqNodeNotAvail, Reserved for other reservations",
		"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
		"Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
		"launch failed requeued held",
		"launch_failed_requeued_held",
		"launch failure limit exceeded requeued held",
		"user env retrieval failed requeued held",
		"job requeued in held state",
		"job requeued in special exit state",
		"Reservation cltest was deleted",
		"License request 'matlab:2' is no longer valid, holding job",
		"Job is at or exceeds QOS normal's group wall limit of 60 with 61",
		"RaisedSignal:15(Terminated)",
	}
}

func TestEachReasonOfTheInstalledSlurmsHasItsSentence(t *testing.T) {
	t.Parallel()
	all := map[string]bool{}
	for _, version := range recordedVersions() {
		names := recordedNames(t, version, "reason")
		if len(names) < 190 {
			t.Errorf("Slurm %s has %d recorded reasons", version, len(names))
		}
		for _, name := range names {
			all[name] = true
		}
	}
	var lines strings.Builder
	for _, reason := range append(slices.Sorted(maps.Keys(all)), textReasons()...) {
		e := Explain(reason)
		if e.Category == Unknown || e.Text == "" {
			t.Errorf("%s has no sentence", reason)
		}
		fmt.Fprintf(&lines, "%s\n\t%s: %s.\n", reason, e.Category, e.Text)
		if e.Action != "" {
			fmt.Fprintf(&lines, "\t%s\n", e.Action)
		}
	}
	golden := filepath.Join("testdata", "reasons.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), lines.String()); d != "" {
		t.Errorf("run with -update if this is meant (-want +got):\n%s", d)
	}
}

func TestReasonThatNobodyKnowsHasNoSentence(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"CosmicRays", "CosmicRays, and more", "QOSGrp", "AssocGrpTribblesLimit", ":", ",", ", ,", "_"} {
		if e := Explain(reason); e.Category != Unknown || e.Text != "" || e.Action != "" {
			t.Errorf("%q: %+v", reason, e)
		}
	}
}

func TestEachEntryOfTheTableIsAReasonOfSomeSlurm(t *testing.T) {
	t.Parallel()
	var all []string
	for _, version := range recordedVersions() {
		all = append(all, recordedNames(t, version, "reason")...)
	}
	for name := range reasons {
		if name != "" && !slices.Contains(all, name) {
			t.Errorf("no recorded Slurm has the reason %q", name)
		}
	}
}

func TestEachStateOfTheInstalledSlurmsIsKnown(t *testing.T) {
	t.Parallel()
	known := []State{
		StatePending, StateConfiguring, StateRunning, StateSuspended, StateStopped, StateCompleting, StateSignaling, StateStageOut,
		StateResizing, StateRequeued, StateRequeueHold, StateRequeueFed, StateSpecialExit, StateResvDelHold, StateExpediting,
		StateCompleted, StateFailed, StateCancelled, StateTimeout, StateDeadline, StateOutOfMemory, StateNodeFail, StateBootFail,
		StatePreempted, StateRevoked,
	}
	for _, version := range recordedVersions() {
		names := recordedNames(t, version, "state")
		if len(names) < 24 {
			t.Errorf("Slurm %s has %d recorded states", version, len(names))
		}
		for _, name := range names {
			if !slices.Contains(known, State(name)) {
				t.Errorf("the state %s of Slurm %s is not known", name, version)
			}
		}
	}
}
