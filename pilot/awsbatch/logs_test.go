package awsbatch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
)

func TestLogIsReadFromAllPages(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	p := start(t, b)
	c.Page = 2
	c.Run(p.Name, "1", "2", "3\n", "4", "5")
	var log strings.Builder
	testenv.Must(t, b.WriteLog(t.Context(), &log, p, false))
	if log.String() != "1\n2\n3\n4\n5\n" {
		t.Errorf("the log is %q", log.String())
	}
}

func TestLogThatIsNotThereIsExplained(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	var log strings.Builder
	p := start(t, b)
	if err := b.WriteLog(t.Context(), &log, p, false); !errors.Is(err, pilot.ErrNoLog) {
		t.Errorf("before the start: %v", err)
	}
	c.Run(p.Name, "hello")
	c.End(p.Name, 0)
	for _, missing := range []string{"stream", "group"} { // AWS makes the group with the first log of the region
		c.Refuse("GetLogEvents", 400, "ResourceNotFoundException", "The specified log "+missing+" does not exist.")
		err := b.WriteLog(t.Context(), &log, p, false)
		want := "it has printed nothing, or CloudWatch keeps it no longer: The specified log " + missing + " does not exist (log group /aws/batch/job, stream codalab-worker/default/" + p.Job + ")"
		if !errors.Is(err, pilot.ErrNoLog) || err.Error() != want {
			t.Errorf("without a %s: %v", missing, err)
		}
	}
	c.Forget(p.Name)
	if err := b.WriteLog(t.Context(), &log, p, false); err == nil || err.Error() != "AWS Batch no longer knows the job of worker host-"+p.Name+", and so the place of its log" {
		t.Errorf("of a forgotten job: %v", err)
	}
	if log.Len() > 0 {
		t.Errorf("the log is %q", log.String())
	}
}

func TestLogsOfTheLastWorkersComeFirst(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	var names []string
	for range 4 {
		names = append(names, start(t, b).Name)
	}
	for i, created := range []int64{100, 200, 300, 400} {
		c.Set(names[i], func(j *awstest.Job) { j.Created = created })
	}
	for i, stopped := range map[int]int64{0: 900, 2: 800} {
		c.Set(names[i], func(j *awstest.Job) { j.Status, j.Stopped = "SUCCEEDED", stopped })
	}
	logged, err := b.Logged(t.Context())
	testenv.Must(t, err)
	for i, want := range []int{3, 1, 0, 2} {
		if logged[i].Name != names[want] {
			t.Errorf("the order is %v", logged)
			break
		}
	}
}
