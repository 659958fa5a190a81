package sbatch

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// programs makes a directory of shell scripts that stand for Slurm's commands.
func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	bin := t.TempDir()
	for name, script := range scripts {
		testenv.WriteProgram(t, filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"))
	}
	return bin
}

func TestOptionsOfARequest(t *testing.T) {
	t.Parallel()
	requests := []Request{
		{},
		{
			Name: "cl-ann-0x123456789abc.1-6f2c1d", Comment: `{"bundle":"0x1 2"}`, Partition: "gpu", Account: "lab",
			QOS: "normal", WCKey: "proj1", Reservation: "course", Constraint: "a100&ib", CPUs: 4, MemoryMiB: 2048,
			GPUType: "a100", GPUs: 2, Time: 90*time.Minute + time.Second, Nice: 100, Dir: "/shared/runs/0x1/1",
			Output: "/shared/100%/slurm.out", Extra: []string{"--licenses=matlab", "--signal=B:USR1@60"}, Script: "#!/bin/sh\n",
		},
		{Name: "array", Tasks: 1000, Output: "ignored", OutputPattern: LiteralPattern("/shared/100%a") + "/%A_%a.out"},
		{Name: "any-gpu", GPUs: 1, Time: time.Second, MemoryMiB: -1, CPUs: -1, Nice: -5},
	}
	var got strings.Builder
	for _, r := range requests {
		got.WriteString(strings.Join(r.Args(), "\n") + "\n\n")
	}
	golden := filepath.Join("testdata", "args.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("run with -update if this is meant (-want +got):\n%s", d)
	}
}

func TestAnswersOfSbatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sbatch string
		want   JobID
		// The fields of the error, if want is 0.
		refused, retry, ofSite bool
	}{
		"id":                           {sbatch: `echo 42`, want: 42},
		"id and cluster":               {sbatch: `echo '42;north'`, want: 42},
		"site banner":                  {sbatch: `echo '*** 3 days to the maintenance ***'; echo 42; echo; echo 'Thank you.'`, want: 42},
		"wrapper fails after the id":   {sbatch: `echo 42; echo 'quota: no such user' >&2; exit 3`, want: 42},
		"killed after the id":          {sbatch: `echo 42; exec sleep 60`, want: 42},
		"nonsense":                     {sbatch: `echo 'Submitted batch job 42'`},
		"nothing":                      {sbatch: `:`},
		"two numbers":                  {sbatch: `echo 42; echo 43`},
		"no job has id 0":              {sbatch: `echo 0`},
		"no answer":                    {sbatch: `exec sleep 60`},
		"killed":                       {sbatch: `kill -9 $$`},
		"no controller":                {sbatch: fails(1, "Unable to contact slurm controller (connect failure)")},
		"answer lost":                  {sbatch: fails(1, "Socket timed out on send/recv operation")},
		"left over from libc":          {sbatch: fails(1, "Resource temporarily unavailable")},
		"no munge":                     {sbatch: fails(1, "Protocol authentication error")},
		"lost after a retry":           {sbatch: `echo 'sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying' >&2;` + fails(1, "Unable to contact slurm controller (receive failure)")},
		"another program's refusal":    {sbatch: `echo 'wrapper: Invalid qos specification' >&2; exit 1`},
		"an option's refusal":          {sbatch: `echo 'sbatch: error: Invalid --time specification' >&2; exit 255`, refused: true, ofSite: true},
		"getopt's refusal":             {sbatch: `echo "$0: unrecognized option '--x'" >&2; exit 255`, refused: true, ofSite: true},
		"ssh lost its connection":      {sbatch: `echo 'client_loop: send disconnect: Broken pipe' >&2; exit 255`},
		"refused by a site's plugin":   {sbatch: `echo 'sbatch: error: Please name a project.' >&2;` + fails(1, "Unspecified error"), refused: true, ofSite: true},
		"too many jobs":                {sbatch: `echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2;` + fails(1, policy), refused: true, retry: true},
		"too many jobs, older Slurm":   {sbatch: fails(1, policy), refused: true, retry: true},
		"job too large for its QOS":    {sbatch: `echo 'sbatch: error: QOSMaxGRESPerUser' >&2;` + fails(1, policy), refused: true},
		"refused with a hard word":     {sbatch: fails(1, "Requested node configuration is not available"), refused: true},
		"standby":                      {sbatch: fails(1, "Slurm backup controller in standby mode"), refused: true, retry: true},
		"refused, killed by a wrapper": {sbatch: fails(143, "Invalid qos specification"), refused: true, ofSite: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := Client{Bin: programs(t, map[string]string{"sbatch": c.sbatch})}
			if strings.Contains(c.sbatch, "sleep 60") {
				client.SubmitTimeout = time.Second
			}
			id, err := client.Submit(t.Context(), Request{Name: "x", Script: "#!/bin/sh\n"})
			if c.want != 0 {
				if id != c.want || err != nil {
					t.Fatalf("%d, %v; want %d", id, err, c.want)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || id != 0 {
				t.Fatalf("%d, %v; want an *Error", id, err)
			}
			if e.Refused != c.refused || e.Retry != c.retry || e.OfSite != c.ofSite {
				t.Errorf("refused %v, retry %v, of the site %v: %v", e.Refused, e.Retry, e.OfSite, e)
			}
			if e.Message == "" || strings.Contains(e.Message, "\n") {
				t.Errorf("message %q: want one line", e.Message)
			}
		})
	}
}

const policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"

// fails returns a script that ends like sbatch after a failed submission.
func fails(status int, answer string) string {
	return `echo "sbatch: error: Batch job submission failed: ` + answer + `" >&2; exit ` + strconv.Itoa(status)
}

func TestSbatchThatCannotBeStartedIsRefusedForNow(t *testing.T) {
	t.Parallel()
	client := Client{Bin: t.TempDir()}
	_, err := client.Submit(t.Context(), Request{Name: "x"})
	var e *Error
	if !errors.As(err, &e) || !e.Refused || !e.Retry || !e.Transient() {
		t.Errorf("%#v: want refused, to be tried again", err)
	}
}

func TestCommandsSeeNothingOfTheLoginShell(t *testing.T) {
	t.Setenv("SBATCH_PARTITION", "leaked")
	t.Setenv("SLURM_CLUSTERS", "leaked")
	t.Setenv("SQUEUE_STATES", "leaked")
	tell := `env | grep -v '^PWD=\|^_=\|^SHLVL=' | sort >"$0.env"; cat >"$0.in"; echo "$@" >"$0.args"`
	bin := programs(t, map[string]string{"sbatch": tell + "; echo 1", "squeue": tell, "sacct": tell, "scancel": tell})
	client := Client{Bin: bin, Conf: "/etc/slurm/here.conf"}
	if _, err := client.Submit(t.Context(), Request{Script: "#!/bin/sh\nexec true\n"}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Observe(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	since := time.Date(2026, 11, 20, 10, 0, 0, 0, time.FixedZone("", 3600))
	if _, err := client.QueryAccounting(t.Context(), since, Which{Names: []string{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	if err := client.Cancel(t.Context(), "a job", 7); err != nil {
		t.Fatal(err)
	}
	told := func(file string) string {
		data, err := os.ReadFile(filepath.Join(bin, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	const path, conf = "PATH=" + DefaultPath + "\n", "SLURM_CONF=/etc/slurm/here.conf\n"
	job := "HOME=" + me.HomeDir + "\nLANG=C.UTF-8\nLOGNAME=" + me.Username + "\n" + path + "SHELL=/bin/sh\n" + conf + "USER=" + me.Username + "\n"
	if d := cmp.Diff(job, told("sbatch.env")); d != "" {
		t.Errorf("sbatch, which passes all on to the job (-want +got):\n%s", d)
	}
	for _, query := range []string{"squeue", "sacct", "scancel"} {
		if d := cmp.Diff("LC_ALL=C\n"+path+"SLURM_BITSTR_LEN=0\n"+conf+"SLURM_TIME_FORMAT=%s\nSQUEUE_ARRAY_UNIQUE=1\nTZ=UTC\n", told(query+".env")); d != "" {
			t.Errorf("%s (-want +got):\n%s", query, d)
		}
	}
	if got := told("sbatch.in"); got != "#!/bin/sh\nexec true\n" {
		t.Errorf("script %q", got)
	}
	if got := told("scancel.args"); got != "--name=a job 7\n" {
		t.Errorf("scancel %s: want it told the name", got)
	}
	if got := told("sacct.args"); !strings.Contains(got, "--starttime=2026-11-20T09:00:00 --name=a,b ") {
		t.Errorf("sacct %s: want the time in UTC", got)
	}
}

func TestCommandsDoNotNeedTheDirectoryOfTheirCaller(t *testing.T) {
	bin := programs(t, map[string]string{"sbatch": `pwd -P >"$0.dir" && echo 1`, "scancel": `pwd -P >"$0.dir"`})
	client := Client{Bin: bin}
	gone := t.TempDir()
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	_, err := client.Submit(t.Context(), Request{})
	if err = errors.Join(err, client.Cancel(t.Context(), "a job", 7)); err != nil {
		t.Error(err)
	}
	for _, program := range []string{"sbatch", "scancel"} {
		if dir, err := os.ReadFile(filepath.Join(bin, program+".dir")); string(dir) != "/\n" {
			t.Errorf("%s runs in %q, %v", program, dir, err)
		}
	}
}

func TestFailedQueryIsNotAnEmptyQueue(t *testing.T) {
	t.Parallel()
	client := Client{QueryTimeout: 200 * time.Millisecond}
	for name, squeue := range map[string]string{
		"failed":     `echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1`,
		"too late":   `exec sleep 60`,
		"moved":      `echo 'Please use the portal.'`,
		"cut short":  `for a; do case $a in --format=*) sep=${a#--format=} sep=${sep%%%*}; printf '%s1%sRUN' "$sep" "$sep"; esac; done`,
		"not a word": `exit 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := client
			client.Bin = programs(t, map[string]string{"squeue": squeue, "sacct": squeue})
			_, err := client.Observe(t.Context(), time.Now())
			var e *Error
			if !errors.As(err, &e) || !e.Transient() || e.Message == "" {
				t.Errorf("squeue: %v: want an error that may pass", err)
			}
			if _, err := client.QueryAccounting(t.Context(), time.Now(), Which{Names: []string{"x"}}); err == nil {
				t.Error("sacct: want an error")
			}
		})
	}
}

func TestCancelOfAPurgedJobIsNoError(t *testing.T) {
	t.Parallel()
	for said, ok := range map[string]bool{
		"scancel: error: Kill job error on job id 7: Invalid job id specified":                   true,
		"scancel: error: Kill job error on job id 7: Job/step already completing or completed":   true,
		"scancel: error: Kill job error on job id 7: Access/permission denied":                   false,
		"scancel: error: slurm_kill_job2() failed Unable to contact slurm controller (connect…)": false,
	} {
		client := Client{Bin: programs(t, map[string]string{"scancel": `echo '` + said + `' >&2; exit 210`})}
		if err := client.Cancel(t.Context(), "a job", 7); (err == nil) != ok {
			t.Errorf("%q: %v", said, err)
		}
	}
	bin := programs(t, map[string]string{"scancel": `echo "$@" >"$0.args"`})
	if err := (&Client{Bin: bin}).Cancel(t.Context(), "", 7, 8); err != nil {
		t.Error(err)
	}
	if args, err := os.ReadFile(filepath.Join(bin, "scancel.args")); string(args) != "7 8\n" {
		t.Errorf("scancel %q, %v: want the plain ids", args, err)
	}
}

// All tasks of an array are one word, because a command line has an end.
func TestCancelOfTasksNamesThemAsRanges(t *testing.T) {
	t.Parallel()
	task := JobID(7).Task
	for want, ids := range map[string][]JobID{
		"7_3":                   {task(3)},
		"7_[0-5,7]":             {task(7), task(0), task(1), task(2), task(3), task(4), task(5), task(1)},
		"9 7_[1,3] 8_0 7":       {9, task(1), JobID(8).Task(0), 7, task(3)},
		"7_[0-9999]":            manyTasks(7, 10_000),
		"1 2 3":                 {1, 2, 3},
		"7_[9998-9999,3999999]": {task(9999), task(3999999), task(9998)},
	} {
		words := cancelWords(ids)
		slices.Sort(words)
		expected := strings.Fields(want)
		slices.Sort(expected)
		if d := cmp.Diff(expected, words); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func manyTasks(array JobID, n int) []JobID {
	ids := make([]JobID, n)
	for i := range ids {
		ids[i] = array.Task(i)
	}
	return ids
}

// With a name, scancel would cancel all tasks that wait for one of them.
func TestTasksAreCancelledByNameWithoutScancelsOwn(t *testing.T) {
	t.Parallel()
	task := JobID(7).Task
	for want, c := range map[string]struct {
		squeue string
		ids    []JobID
	}{
		"7_[1-2]\n":             {`echo "${sep}7${sep}a job"; echo "${sep}7${sep}a job"`, []JobID{task(1), task(2)}},
		"":                      {`echo "${sep}7${sep}a job of another"`, []JobID{task(1)}},
		"8_1\n":                 {`printf "${sep}7${sep}a\njob\n${sep}8${sep}a job\n"`, []JobID{task(1), JobID(8).Task(1)}},
		"--name=a job 9\n7_1\n": {`echo "${sep}7${sep}a job"`, []JobID{task(1), 9}},
		"--name=a job 9\n":      {`echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1`, []JobID{task(1), 9}},
	} {
		bin := programs(t, map[string]string{
			"squeue":  `for a; do case $a in --format=*) sep=${a#--format=}; sep=${sep%%%*};; esac; done; ` + c.squeue,
			"scancel": `echo "$@" >>"$0.args"`,
		})
		if err := (&Client{Bin: bin}).Cancel(t.Context(), "a job", c.ids...); err != nil {
			t.Errorf("%q: %v", want, err)
		}
		if got, _ := os.ReadFile(filepath.Join(bin, "scancel.args")); string(got) != want { // absent if it was not run
			t.Errorf("scancel %q, want %q", got, want)
		}
	}
	for _, squeue := range []string{`echo no controller >&2; exit 1`, `echo Welcome`, `printf "${sep}7${sep}a job"`} {
		bin := programs(t, map[string]string{
			"squeue":  `for a; do case $a in --format=*) sep=${a#--format=}; sep=${sep%%%*};; esac; done; ` + squeue,
			"scancel": `echo "$@" >>"$0.args"`,
		})
		err := (&Client{Bin: bin}).Cancel(t.Context(), "a job", task(1))
		if _, ran := os.Stat(filepath.Join(bin, "scancel.args")); err == nil || ran == nil {
			t.Errorf("%s: %v; scancel was run: %v", squeue, err, ran == nil)
		}
	}
}

// A command line has an end, and sacct knows no ranges.
func TestQuestionForManyTasksIsOneForTheirArray(t *testing.T) {
	t.Parallel()
	for want, ids := range map[string][]JobID{
		"--jobs=5,9":       {9, 5},
		"--jobs=5,7_0,7_1": {JobID(7).Task(1), 5, JobID(7).Task(0)},
		"--jobs=5,8_3,7":   append(manyTasks(7, 101), 5, JobID(8).Task(3)),
		"--jobs=7":         append(manyTasks(7, 10_000), 7),
	} {
		if got := ask(ids).option(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Only the last of several --exclude counts: the site's own would have replaced the bridge's.
func TestNodesAreExcludedBesideThoseOfTheSite(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Request{
		"":                          {Extra: []string{"--exclusive"}},
		"--exclude=n1":              {Exclude: "n1"},
		"--exclude=n[7-9]":          {Extra: []string{"--exclude=n[7-9]", "--exclusive"}},
		"--exclude=n[7-9],n6,n1,n2": {Exclude: "n1,n2", Extra: []string{"--exclude=n[7-9],n6", "--licenses=a"}},
	} {
		var got []string
		for _, option := range r.Args() {
			if strings.HasPrefix(option, "--exclude=") {
				got = append(got, option)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAllCommandsGoToTheClusterOfTheClient(t *testing.T) {
	t.Parallel()
	tell := `echo "$0 $*" >>"${0%/*}/told"; `
	bin := programs(t, map[string]string{
		"sbatch": tell + "echo '7;north'", "squeue": tell, "sacct": tell, "scancel": tell, "sinfo": tell, "scontrol": tell, "sacctmgr": tell,
	})
	c := &Client{Bin: bin, Cluster: "north"}
	r := Request{Name: "x", Script: "#!/bin/sh\n"}
	if id, err := c.Submit(t.Context(), r); id != 7 || err != nil {
		t.Errorf("%d, %v", id, err)
	}
	_ = c.Try(t.Context(), r)
	_, _ = c.Observe(t.Context(), time.Now())
	_, _ = c.QueryAccounting(t.Context(), time.Now(), Which{Names: []string{"x"}})
	_ = c.Cancel(t.Context(), "x", 7)
	_, _ = c.Partitions(t.Context())
	_, _ = c.Settings(t.Context())
	_, _ = c.Describe(t.Context(), 7)
	_, _ = c.Version(t.Context()) // asks no controller
	told, err := os.ReadFile(filepath.Join(bin, "told"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(told)), "\n")
	for _, line := range lines {
		if strings.Contains(line, "--version") == strings.Contains(line, " --clusters=north") {
			t.Errorf("%s", line)
		}
	}
	if len(lines) != 11 {
		t.Errorf("%d commands: %q", len(lines), lines)
	}
	c.Cluster = "south"
	var e *Error
	if id, err := c.Submit(t.Context(), r); id != 0 || !errors.As(err, &e) || e.Refused || e.Message != "sbatch made job 7 on cluster north, and not on south" {
		t.Errorf("a job of another cluster: %d, %+v", id, err)
	}
}

// getopt(3) takes the next word for the argument of an option that needs one.
func TestOptionWithoutItsArgumentMakesNoSubmissionOfATry(t *testing.T) {
	t.Parallel()
	bin := programs(t, map[string]string{"sbatch": `for o; do [ "$last" = --mail-user ] && o=argument; [ "$o" = --test-only ] && exit 0; last=$o; done; echo 'it was submitted' >&2; exit 1`})
	r := Request{Name: "x", Extra: []string{"--mail-user"}, Script: "#!/bin/sh\n"}
	if err := (&Client{Bin: bin}).Try(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// An id counts only if exactly one line has its form, whatever the other lines are.
func FuzzSubmitAnswer(f *testing.F) {
	f.Add("42\n", "sbatch: error: Batch job submission failed: Invalid qos specification\n", 1)
	f.Add("42;north\n43\n", "sbatch: unrecognized option '--x'\n", 255)
	f.Fuzz(func(t *testing.T, out, stderr string, exit int) {
		id, _, ok := printedID(out)
		if ok && (id <= 0 || !strings.Contains(out, id.String())) {
			t.Errorf("%q was read as %d", out, id)
		}
		if refused, retry, ofSite := classify(stderr, exit); !refused && (retry || ofSite) || refused && !strings.Contains(stderr, submissionFailed) && !strings.Contains(stderr, "sbatch: ") {
			t.Errorf("%q: refused %v, retry %v", stderr, refused, retry)
		}
		if m := oneLine(stderr); strings.Contains(m, "\n") {
			t.Errorf("%q has more than one line", m)
		}
	})
}
