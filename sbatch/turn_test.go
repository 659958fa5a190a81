package sbatch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// turnsOf reads an answer with a job in each line: id, partitions, priority, reason.
func turnsOf(t *testing.T, answer string, ids ...JobID) map[JobID]Turn {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(strings.TrimSpace(answer) + "\n") {
		for _, field := range strings.SplitN(strings.TrimSpace(line), " ", 4) {
			out.WriteString("|X|" + field)
		}
		out.WriteString("\n")
	}
	turns, err := parseTurns(out.String(), "|X|", ids)
	if err != nil {
		t.Fatal(err)
	}
	return turns
}

func TestPlaceOfAJobCountsTheJobsThatSlurmConsidersBefore(t *testing.T) {
	t.Parallel()
	got := turnsOf(t, `
		8 cpu 100 Priority
		7 cpu 100 Resources
		9 cpu 300 Priority
		3 cpu 50 Priority
		4 gpu 900 Priority
		5 cpu 900 JobHeldUser
		6 cpu 900 QOSMaxJobsPerUserLimit
		10 cpu,gpu 400 None
		11 cpu 900 BeginTime
	`, 3, 8, 7, 10, 5, 77)
	want := map[JobID]Turn{
		10: {"cpu", 0},
		7:  {"cpu", 2}, // 10 and 9
		8:  {"cpu", 3}, // and the older 7 of the same priority
		3:  {"cpu", 4},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if none := turnsOf(t, "1 cpu 1 Priority"); len(none) != 0 {
		t.Errorf("of no job: %v", none)
	}
}

// The tasks of an array that never began are one job for Slurm. Those that it has put back into the queue are jobs of their
// own, and older than later submissions.
func TestTasksOfAnArrayHaveOnePlace(t *testing.T) {
	t.Parallel()
	task := JobID(8).Task
	got := turnsOf(t, `
		9 cpu 100 Priority
		7 cpu 100 Priority
		8_[3-5,9%2] cpu 100 Priority
		8_1 cpu 100 Resources
	`, 9, task(1), task(4), task(9), task(2))
	want := map[JobID]Turn{task(1): {"cpu", 1}, task(4): {"cpu", 2}, task(9): {"cpu", 2}, 9: {"cpu", 3}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestCutAnswerAboutPlacesIsAnError(t *testing.T) {
	t.Parallel()
	for _, out := range []string{
		"Welcome to the cluster!\n|X|1|X|cpu|X|1|X|Priority\n", "|X|1|X|cpu|X|1|X|Priority", "|X|1|X|cpu|X|1\n",
		"|X|one|X|cpu|X|1|X|Priority\n", "|X|1|X|cpu|X|high|X|Priority\n", "|X|1|X||X|1|X|Priority\n",
	} {
		if turns, err := parseTurns(out, "|X|", []JobID{1}); err == nil {
			t.Errorf("%q: %v", out, turns)
		}
	}
	if turns, err := parseTurns("", "|X|", []JobID{1}); err != nil || len(turns) != 0 {
		t.Errorf("no job waits: %v, %v", turns, err)
	}
}

func TestPlaceFarBehindIsRounded(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[int]int{0: 0, 7: 7, 99: 99, 100: 100, 101: 110, 995: 1000, 1234: 1300, 56789: 57000} {
		if got := (Turn{"cpu", ahead}).Rounded(); got != (Turn{"cpu", want}) {
			t.Errorf("%d: %+v, want %d", ahead, got, want)
		}
	}
}
