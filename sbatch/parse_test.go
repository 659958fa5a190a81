package sbatch

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// recorded is an answer of Slurm 22.05.8.
func recorded(t *testing.T, name string) string {
	t.Helper()
	return recordedOf(t, "22.05.8", name)
}

func recordedOf(t *testing.T, version, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", version, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A bridge keeps a job from the last snapshot in which it changed, and ten thousand jobs change in hundreds of
// snapshots of megabytes each.
func TestJobDoesNotKeepTheWholeAnswer(t *testing.T) {
	t.Parallel()
	queue, accounting := recorded(t, "squeue.txt"), recorded(t, "sacct.txt")
	queued, err := parseQueue(queue, "|MARKED00|")
	if err != nil {
		t.Fatal(err)
	}
	accounted, _, err := parseAccounting(accounting, "|")
	if err != nil {
		t.Fatal(err)
	}
	within := func(part, whole string) bool {
		at, from := uintptr(unsafe.Pointer(unsafe.StringData(part))), uintptr(unsafe.Pointer(unsafe.StringData(whole)))
		return part != "" && at >= from && at < from+uintptr(len(whole))
	}
	for _, j := range slices.Concat(queued, accounted) {
		for _, s := range []string{j.Name, string(j.State), j.Reason, j.Nodes, j.Exit, j.Comment} {
			if within(s, queue) || within(s, accounting) {
				t.Errorf("%q of job %d is a part of the answer", s, j.ID)
			}
		}
	}
}

func named(jobs []Job, name string) []Job { return Snapshot{Jobs: jobs}.ByName()[name] }

func TestQueueIsReadAsSlurmPrintsIt(t *testing.T) {
	t.Parallel()
	jobs, err := parseQueue(recorded(t, "squeue.txt"), "|MARKED00|")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		want Job // without id and start
		ever bool
	}{
		{name: "clrec-running", want: Job{State: StateRunning, Reason: "None", Nodes: "n1", Comment: "runs"}, ever: true},
		{name: "clrec-completed", want: Job{State: StateCompleted, Reason: "None", Nodes: "n1", Exit: ExitedWell, Comment: `{"uuid":"0x1"}`}, ever: true},
		{name: "clrec-failed", want: Job{State: StateFailed, Reason: "NonZeroExitCode", Nodes: "n1"}, ever: true},
		{name: "clrec-oom", want: Job{State: StateOutOfMemory, Reason: "OutOfMemory", Nodes: "n1"}, ever: true},
		{name: "clrec-cancelled", want: Job{State: StateCancelled, Reason: "None", Nodes: "n1"}, ever: true},
		{name: "clrec-cancelled-held", want: Job{State: StateCancelled, Reason: "JobHeldUser"}, ever: true},
		{name: "clrec-deadline", want: Job{State: StateDeadline, Reason: "DeadLine"}, ever: true},
		{name: "clrec-ghost", want: Job{State: StateFailed, Reason: "BadConstraints"}, ever: true},
		{name: "clrec-hidden", want: Job{State: StatePending, Reason: "ReqNodeNotAvail, May be reserved for other job", Comment: "hidden"}},
		{name: "clrec-begin", want: Job{State: StatePending, Reason: "BeginTime"}, ever: true},
		{name: "clrec-toowide", want: Job{State: StatePending, Reason: "PartitionNodeLimit"}},
		{name: "clrec-dependent", want: Job{State: StatePending, Reason: "Dependency"}},
		{name: "clrec-held", want: Job{State: StatePending, Reason: "JobHeldUser"}},
		{name: "clrec-no-comment", want: Job{State: StatePending, Reason: "JobHeldUser"}},
		{name: "clrec|pipe", want: Job{State: StatePending, Reason: "JobHeldUser", Comment: "a|b"}},
		{name: "clrec\nline", want: Job{State: StatePending, Reason: "JobHeldUser", Comment: "a\n215|COMPLETED|n1|1|x|None|y"}},
		{name: " clrec-é\t", want: Job{State: StatePending, Reason: "JobHeldUser", Comment: "\a"}},
		{name: "", want: Job{State: StatePending, Reason: "JobHeldUser", Comment: "empty name"}},
	} {
		found := named(jobs, c.name)
		if len(found) != 1 {
			t.Errorf("%q: %d jobs, want 1", c.name, len(found))
			continue
		}
		got := found[0]
		if got.Start.IsZero() == c.ever || got.ID == 0 {
			t.Errorf("%q: id %d, start %v", c.name, got.ID, got.Start)
		}
		// testdata/record submits the first job, and the others within a minute.
		if after := got.Submitted.Sub(time.Unix(1796002668, 0)); after < 0 || after > time.Minute || after > 0 && c.name == "clrec-running" || !got.Start.IsZero() && got.Start.Before(got.Submitted) {
			t.Errorf("%q: submitted %v, start %v", c.name, got.Submitted, got.Start)
		}
		limit := 5 * time.Minute
		switch c.name {
		case "clrec-deadline":
			limit = time.Minute // it requests a second
		case "clrec-hidden":
			limit = 5 * 24 * time.Hour
		case "clrec-no-comment":
			limit = Unlimited
		}
		got.ID, got.Start, got.Submitted, c.want.Name, c.want.TimeLimit = 0, time.Time{}, time.Time{}, c.name, limit
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.name, d)
		}
	}
	for name, want := range map[string]string{
		"clrec-array":   "1500_1 COMPLETED, 1500_2 RUNNING, 1500_3 PENDING",
		"clrec-stepped": "1501_2 PENDING, 1501_4 PENDING, 1501_6 PENDING, 1501_8 PENDING, 1501_10 PENDING, 1501_12 PENDING, 1501_14 PENDING, 1501_16 PENDING, 1501_18 PENDING, 1501_20 PENDING",
	} {
		if got := tasks(named(jobs, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// tasks returns the ids and the states of jobs.
func tasks(jobs []Job) string {
	var all []string
	for _, j := range jobs {
		all = append(all, j.ID.String()+" "+string(j.State))
	}
	return strings.Join(all, ", ")
}

func TestAccountingIsReadAsSlurmPrintsIt(t *testing.T) {
	t.Parallel()
	jobs, shared, err := parseAccounting(recorded(t, "sacct.txt"), "|")
	if err != nil {
		t.Fatal(err)
	}
	if got := tasks(named(jobs, "clrec-array")); got != "1500_1 COMPLETED, 1500_2 COMPLETED, 1500_3 COMPLETED" || len(shared) != 10 {
		t.Errorf("%s, and %s share a record", got, tasks(shared))
	}
	for _, c := range []struct {
		name        string
		state       State
		nodes, exit string
	}{
		{"clrec-completed", StateCompleted, "n1", ""},
		{"clrec-failed", StateFailed, "n1", "1:0"},
		{"clrec-oom", StateOutOfMemory, "n1", "0:125"},
		{"clrec-timeout", StateTimeout, "n1", "0:0"},
		{"clrec-cancelled", StateCancelled, "n1", "0:0"}, // "CANCELLED by 0"
		{"clrec-cancelled-held", StateCancelled, "", "0:0"},
		{"clrec-deadline", StateDeadline, "", "1:0"}, // "None assigned"
		{"clrec-ghost", StateFailed, "", "1:0"},
		{"clrec-toowide", StateCancelled, "", "0:0"},
		{"clrec-held", StatePending, "", ""}, // start "Unknown"
	} {
		found := named(jobs, c.name)
		want := Job{Name: c.name, State: c.state, Nodes: c.nodes, Exit: c.exit}
		if c.state == StateCancelled {
			want.CancelledBy = "0"
		}
		if len(found) != 1 || found[0].Submitted.IsZero() || found[0].Start.IsZero() != (c.nodes == "" && c.name != "clrec-ghost") {
			t.Errorf("%s: %+v", c.name, found)
			continue
		}
		got := found[0]
		got.ID, got.Submitted, got.Start, got.Reason = 0, time.Time{}, time.Time{}, ""
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
	// The database's answer in the first seconds of a job.
	young, _, err := parseAccounting(recorded(t, "sacct-young.txt"), "|")
	if err != nil || len(young) != 2 || young[0].Name != "allocation" || young[1].State != StateRunning {
		t.Errorf("a young job: %+v, %v", young, err)
	}
	none, _, err := parseAccounting("", "|")
	if err != nil || len(none) != 0 {
		t.Errorf("no job: %+v, %v", none, err)
	}
}

func TestNamesWithSeparatorsAndLineFeedsAreReadFromAccounting(t *testing.T) {
	t.Parallel()
	const separator = "|MARKED00|"
	record := func(id, name string) string {
		return strings.Join([]string{id, "COMPLETED", "n1", "1", name, "None", "2", "0:0"}, separator) + "\n"
	}
	names := []string{"a|b|c", "\n8|RUNNING", "line\nfeed\n", "", "\"quoted\"", "é", strings.Repeat("x", 200)}
	out := ""
	for i, name := range names {
		out += record(strconv.Itoa(i+1), name)
	}
	jobs, _, err := parseAccounting(out, separator)
	if err != nil || len(jobs) != len(names) {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	for i, j := range jobs {
		if j.Name != names[i] || j.ID != JobID(i+1) || j.Submitted.Unix() != 2 {
			t.Errorf("%q was read as %+v", names[i], j)
		}
	}
	for end := range len(out) - 1 { // cut between two records it is whole: sacct's exit status tells
		if jobs, _, err := parseAccounting(out[:end], separator); err == nil && end > 0 && out[end-1] != '\n' {
			t.Errorf("%d jobs were read from an answer that ends in %q", len(jobs), out[max(0, end-30):end])
		}
	}
}

func TestHalfAnAnswerIsAnError(t *testing.T) {
	t.Parallel()
	const separator = "|MARKED00|"
	whole := recorded(t, "squeue.txt")
	pending := func(id string) string {
		return strings.Join([]string{"", id, "PENDING", "", "N/A", "n", "None", "1795169830", "5:00", "\n"}, separator)
	}
	if jobs, err := parseQueue(pending("1"), separator); err != nil || len(jobs) != 1 {
		t.Fatalf("%+v, %v", jobs, err)
	}
	for _, out := range []string{
		"This cluster has moved.\n",
		"Welcome!\n" + whole,
		whole[:len(whole)-1],
		whole[:strings.LastIndex(whole, separator)],
		strings.Replace(whole, separator+"PENDING", separator, 1),
		strings.Replace(whole, separator+"PENDING", "|x|PENDING", 1),
		pending("0"),
		pending("1_x"),
		pending("1_[0-3"),
		pending("1_[0,...]"),
		pending("1_[2-1]"),
		pending("1_[0-4:0]"),
		pending("1+"),
		strings.Replace(pending("1"), separator+"5:00", "", 1),
		whole + separator + "9" + separator + "PENDING" + separator + separator + "N/A" + separator + "a name with a line feed\n", // cut there
	} {
		if jobs, err := parseQueue(out, separator); err == nil {
			t.Errorf("%d jobs were read from an answer that ends in %q", len(jobs), out[max(0, len(out)-80):])
		}
	}
	for _, out := range []string{"sacct: no\n", "1|COMPLETED|n1|1|name|None\n", "1|COMPLETED|n1|1|name|None|1\n", "1|COMPLETED|n1|1|name|None|17|0:0", "1||n1|1|name|None|1|0:0\n", "x|COMPLETED|n1|1|name|None|1|0:0\n"} {
		if jobs, _, err := parseAccounting(out, "|"); err == nil {
			t.Errorf("%q was read as %+v", out, jobs)
		}
	}
	if jobs, err := parseQueue("", separator); err != nil || len(jobs) != 0 {
		t.Errorf("an empty queue: %+v, %v", jobs, err)
	}
}

func TestTasksThatShareARecordAreJobs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"5":                 "5",
		"5_3":               "5_3",
		"5+2":               "7", // a component of a heterogeneous job
		"5_[3]":             "5_3",
		"5_[0-2]":           "5_0 5_1 5_2",
		"5_[0-1,7%2]":       "5_0 5_1 5_7",
		"5_[2-6:2,9-10]":    "5_2 5_4 5_6 5_9 5_10",
		"5_[0-10000]":       "5", // somebody's huge array
		"5_[0-4000000:500]": strings.TrimSuffix(strings.Repeat("5_* ", 8001), " "),
	} {
		ids, shared, err := appendIDs(nil, text)
		var got []string
		for _, id := range ids {
			if got = append(got, id.String()); len(ids) > 100 {
				got[len(got)-1] = "5_*"
			}
		}
		if strings.Join(got, " ") != want || err != nil || shared != strings.Contains(text, "[") {
			t.Errorf("%s: %.80s, shared %v, %v", text, got, shared, err)
		}
	}
}

// The lines of Slurm 22.05.8 for an array of which task 5 was cancelled while it waited, and then the last tasks that
// waited. Task 9 was held, which gave it a record of its own.
func TestTasksOwnRecordInAccountingCounts(t *testing.T) {
	t.Parallel()
	const out = `1461_1|CANCELLED by 1001|n1|1796002233|arrexp|None|1796002233|0:0
1461_3|RUNNING|n1|1796002239|arrexp|JobArrayTaskLimit|1796002233|0:0
1461_9|PENDING|None assigned|Unknown|arrexp|JobArrayTaskLimit|1796002233|0:0
1461_[8-9%3]|CANCELLED by 1001|None assigned|None|arrexp|JobArrayTaskLimit|1796002233|0:0
`
	own, shared, err := parseAccounting(out, "|")
	if err != nil || tasks(own) != "1461_1 CANCELLED, 1461_3 RUNNING, 1461_9 PENDING" || tasks(shared) != "1461_8 CANCELLED" {
		t.Errorf("%s; shared %s; %v", tasks(own), tasks(shared), err)
	}
	client := Client{Bin: programs(t, map[string]string{"sacct": `for a; do case $a in --delimiter=*) sep=${a#--delimiter=};; esac; done
		while read -r line; do printf '%s\n' "$line"; done <<END | sed "s/|/$sep/g"
` + out + `END`})}
	for want, ids := range map[string][]JobID{
		"1461_3 RUNNING": {JobID(1461).Task(3), JobID(1461).Task(8), JobID(1461).Task(7), 1463},
		"1461_1 CANCELLED, 1461_3 RUNNING, 1461_9 PENDING, 1461_8 CANCELLED": {1461},
	} {
		jobs, err := client.QueryAccounting(t.Context(), time.Now(), Which{IDs: ids})
		if err != nil || tasks(jobs) != want {
			t.Errorf("of %v: %s, %v", ids, tasks(jobs), err)
		}
	}
}

func TestUnknownStateHasNotEnded(t *testing.T) {
	t.Parallel()
	for _, s := range []State{"?", "", "POWERING_UP", "completed", StateStopped, StateSuspended, StateCompleting, StateRequeued, StateSpecialExit, StateRevoked, StateRequeueFed, StateExpediting} {
		if s.Ended() {
			t.Errorf("%q has ended", s)
		}
	}
	for _, s := range []State{
		StateCompleted, StateFailed, StateCancelled, StateTimeout, StateDeadline,
		StateOutOfMemory, StateNodeFail, StateBootFail, StatePreempted,
	} {
		if !s.Ended() {
			t.Errorf("%q has not ended", s)
		}
	}
}

func TestByNameIsInTheOrderOfIDs(t *testing.T) {
	t.Parallel()
	s := Snapshot{Jobs: []Job{{ID: 9, Name: "a"}, {ID: 3, Name: "a"}, {ID: 5, Name: "b"}, {ID: 4, Name: "a"}}}
	var ids []JobID
	for _, j := range s.ByName()["a"] {
		ids = append(ids, j.ID)
	}
	if d := cmp.Diff([]JobID{3, 4, 9}, ids); d != "" {
		t.Error(d)
	}
}

// Names and comments are read exactly as users wrote them, and cannot forge, hide or change another job.
func FuzzQueue(f *testing.F) {
	f.Add("name", "None", "comment", "")
	f.Add("a|b", "ReqNodeNotAvail, UnavailableNodes:n1", "l1\nl2|3", "\n")
	f.Add("\n9|RUNNING", "", "|", "|MARKED0")
	f.Fuzz(func(t *testing.T, name, reason, comment, raw string) {
		const separator = "|MARKED00|"
		if strings.Contains(name+"\x00"+reason+"\x00"+comment, separator) || comment == "(null)" {
			return // no user knows the separator
		}
		record := strings.Join([]string{"", "7", "RUNNING", "n1", "1795169834", name, reason, "1795169830", "1-02:03:04", comment + "\n"}, separator)
		after := strings.Join([]string{"", "8", "PENDING", "", "N/A", "other", "None", "N/A", "NOT_SET", "(null)\n"}, separator)
		if joined := record + after; strings.Count(joined, separator) != 18 {
			return // the end of a field and the start of a separator make another one
		}
		got, err := parseQueue(record+after, separator)
		want := []Job{
			{ID: 7, Name: name, State: StateRunning, Reason: reason, Nodes: "n1", Start: time.Unix(1795169834, 0), Submitted: time.Unix(1795169830, 0), TimeLimit: 26*time.Hour + 3*time.Minute + 4*time.Second, Comment: comment},
			{ID: 8, Name: "other", State: StatePending, Reason: "None"},
		}
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("%v\n%s", err, cmp.Diff(want, got))
		}
		jobs, err := parseQueue(raw, separator)
		if err == nil && len(jobs) == 0 && strings.TrimSpace(raw) != "" {
			t.Errorf("%q is no empty queue", raw)
		}
		own, shared, _ := parseAccounting(raw, separator)
		for _, j := range slices.Concat(jobs, own, shared) {
			if j.ID <= 0 || j.State == "" {
				t.Errorf("%q was read as %+v", raw, j)
			}
		}
	})
}
