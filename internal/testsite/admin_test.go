package testsite_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// inAnHour is a site's wrapper of sbatch that lets the jobs of one partition begin in an hour.
const inAnHour = `case "$*" in *--partition=gpu*) exec $BIN/sbatch "$@" --begin=now+1hour;; esac
exec $BIN/sbatch "$@"
`

// I3, I4: what an administrator changes of a waiting and of a running job ends no bundle, and none runs twice.
func TestI3AdministratorsChangesOfAJobEndNoBundle(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(wrapped(t, map[string]string{"sbatch": inAnHour}))})
	running := run(t, s, "cpu", "echo once; until [ -e go ]; do sleep 0.2; done")
	waiting := run(t, s, "gpu", "echo once", "--request-time", "30m")
	job := begun(t, s, running)
	untilPrinted(t, s, running, "once")
	update := func(job string, values ...string) {
		admin(t, append([]string{"scontrol", "update", "jobid=" + job}, values...)...)
	}

	update(job, "name=vip", "timelimit=3:00:00")
	update(job, "timelimit=30")
	update(job, "comment=charge=1234")
	admin(t, "scontrol", "suspend", job)
	until(t, s, running, "run_status", "suspended")
	testenv.AwaitStopped(t, testenv.Slurm(t), job)
	admin(t, "scontrol", "resume", job)
	admin(t, "scancel", "--batch", "--signal=USR1", job)
	admin(t, "scancel", "--batch", "--signal=CONT", job)
	if code, words := fails(t, "scontrol", "requeue", job); code == 0 || !strings.Contains(words, "disabled") {
		t.Errorf("a requeue: %d, %s", code, words)
	}

	status := until(t, s, waiting, "run_status", "BeginTime")
	_, queued, _ := strings.Cut(status, "Slurm job ")
	queued, _, _ = strings.Cut(queued, " ")
	admin(t, "scontrol", "hold", queued)
	update(queued, "name=moved", "comment=moved", "partition=cpu", "nice=7", "qos=normal")
	until(t, s, waiting, "run_status", "JobHeldAdmin")
	update(queued, "starttime=now", "partition=short") // which allows 10 minutes; an administrator's own timelimit has no bound
	admin(t, "scontrol", "release", queued)
	until(t, s, waiting, "run_status", `PartitionTimeLimit.*The site has changed the job: its partition is short instead of gpu\.`)
	update(queued, "partition=cpu")
	update(queued, "nice=0")
	ranOnce(t, s, waiting)

	testenv.Must(t, s.GoOn(t.Context(), running))
	ranOnce(t, s, running)
	for _, bundle := range []string{running, waiting} {
		if e := explain(t, s, bundle); e.Attempt != 1 {
			t.Errorf("%d attempts: %+v", e.Attempt, e.History)
		}
	}
}

// plugin is a site's wrapper of sbatch that does what plugins of job_submit do: it changes the job's name, comment,
// partition, time and other fields, and talks.
const plugin = `echo "sbatch: lua: your job was moved to partition short" >&2
exec $BIN/sbatch "$@" --job-name=site-job --comment=checked --partition=short --time=7 --nice=3 --wckey=proj1
`

// I2, I3: a plugin of the site may change a job's name, comment, partition and time.
func TestI2JobThatAPluginRewritesIsOneOnRealSlurm(t *testing.T) {
	t.Parallel()
	need(t)
	s := own(t, testsite.Options{Config: often(wrapped(t, map[string]string{"sbatch": plugin}))})
	good, bad, killed := run(t, s, "cpu", "sleep 3; echo once"), run(t, s, "cpu", "exit 3"), run(t, s, "cpu", "sleep 600")
	job := begun(t, s, killed)
	if f := facts(t, s, job); f["JobName"] != "site-job" || f["Partition"] != "short" || f["Comment"] != "checked" {
		t.Fatalf("the plugin did nothing: %v", f)
	}
	ranOnce(t, s, good)
	if state, exit := ended(t, s, bad), field(t, s, bad, "exitcode"); state != "failed" || exit != "3" {
		t.Errorf("state %s, exit code %s", state, exit)
	}
	cl(t, s, "kill", killed)
	if state := ended(t, s, killed); state != "killed" {
		t.Errorf("state %s", state)
	}
	testenv.Await(t, "its job is gone", func() bool {
		return strings.HasPrefix(facts(t, s, job)["JobState"], "CANCEL") || facts(t, s, job)["JobState"] == "FAILED"
	})
	for _, bundle := range []string{good, bad, killed} {
		if e := explain(t, s, bundle); e.Attempt != 1 || len(begins(t, s, bundle)) != 1 {
			t.Errorf("attempt %d, begins %d: %+v", e.Attempt, len(begins(t, s, bundle)), e.History)
		}
	}
}
