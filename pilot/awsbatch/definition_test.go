package awsbatch_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/batch"
	"github.com/aws/aws-sdk-go-v2/service/batch/types"
	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
)

var update = flag.Bool("update", false, "write the golden files")

func TestDefinitionIsRegisteredOncePerContent(t *testing.T) {
	t.Parallel()
	c, small := openCloud(t)
	c.Page = 1 // so that revisions are found on later pages
	large := open(c.URL, "large")
	large.Definition.CPUs, large.Definition.GPUs = 8, 1
	var of []string
	for range 2 { // managers, and their next instances
		for _, b := range []pilot.Backend{small, large, open(c.URL, "codalab")} {
			p, err := b.Start(t.Context(), b.NewName(), token)
			testenv.Must(t, err)
			of = append(of, c.Named(p.Name)[0].Definition)
		}
	}
	if c.Definitions() != 2 || of[0] == of[1] {
		t.Errorf("there are %d revisions, and the jobs use %q", c.Definitions(), of)
	}
	if diff := cmp.Diff([]string{of[0], of[1], of[0], of[0], of[1], of[0]}, of); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestRevisionThatSomebodyRemovesIsRegisteredAgain(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	start(t, b)
	c.Deregister()
	if _, err := b.Start(t.Context(), b.NewName(), token); err == nil || kindOf(err).Uncertain {
		t.Errorf("the error is %v", err)
	}
	start(t, b)
	if n := c.Definitions(); n != 2 {
		t.Errorf("there are %d revisions", n)
	}
}

// Two managers that find no revision at the same time register one each. Both go on, and nobody registers a third.
func TestManagersThatRegisterAtOnceBothStartWorkers(t *testing.T) {
	t.Parallel()
	c, first := openCloud(t)
	second, third := open(c.URL, "second"), open(c.URL, "third")
	release := c.Hold("RegisterJobDefinition")
	defer release()
	started := make(chan error)
	go func() {
		_, err := first.Start(t.Context(), first.NewName(), token)
		started <- err
	}()
	testenv.Await(t, "the first manager registers", func() bool { return c.Requests("RegisterJobDefinition") == 1 })
	start(t, second)
	release()
	testenv.Must(t, <-started)
	start(t, third)
	if c.Definitions() != 2 || c.Requests("SubmitJob") != 3 {
		t.Errorf("there are %d revisions and %d submissions", c.Definitions(), c.Requests("SubmitJob"))
	}
}

// The library sends a registration again whose answer is lost. A second revision of the same content harms nobody.
func TestLostRegistrationStartsOneWorker(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	c.LoseAnswer("RegisterJobDefinition")
	p := start(t, b)
	start(t, open(c.URL, "next"))
	if n := len(c.Named(p.Name)); n != 1 || c.Definitions() != 2 {
		t.Errorf("there are %d jobs and %d revisions", n, c.Definitions())
	}
}

func TestImpossibleDefinitionsAreRefusedInAWSsWords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 129)
	for name, test := range map[string]struct {
		change func(d *awsbatch.Definition)
		want   string
	}{
		"a name of 128 characters": {func(d *awsbatch.Definition) { d.Name = long[1:] }, ""},
		"a name of 129 characters": {
			func(d *awsbatch.Definition) { d.Name = long },
			"register the job definition " + long + ": ClientException: Job Definition name should match valid pattern",
		},
		"memory below 4 MiB": {
			func(d *awsbatch.Definition) { d.MemoryMB = 3 },
			"register the job definition codalab-worker: ClientException: Error executing request, Exception : Invalid resource requirement MEMORY 3",
		},
	} {
		c, b := openCloud(t)
		test.change(&b.Definition)
		_, err := b.Start(t.Context(), b.NewName(), token)
		if got := fmt.Sprint(err); test.want == "" && err != nil || test.want != "" && got != test.want {
			t.Errorf("%s: the error is %s", name, got)
		}
		if err != nil && (kindOf(err) != kind{} || c.Requests("RegisterJobDefinition") != 1 || c.Requests("SubmitJob") != 0) {
			t.Errorf("%s: %+v, and it was sent again", name, kindOf(err))
		}
	}
}

// gpusOf returns the requirements of a job's definition, as AWS shows them.
func gpusOf(t *testing.T, b *awsbatch.Backend) map[types.ResourceType]string {
	t.Helper()
	shown, err := b.Batch.DescribeJobDefinitions(t.Context(), &batch.DescribeJobDefinitionsInput{JobDefinitionName: &b.Definition.Name})
	testenv.Must(t, err)
	if len(shown.JobDefinitions) != 1 {
		t.Fatalf("there are %d definitions", len(shown.JobDefinitions))
	}
	got := map[types.ResourceType]string{}
	for _, r := range shown.JobDefinitions[0].ContainerProperties.ResourceRequirements {
		got[r.Type] = aws.ToString(r.Value)
	}
	return got
}

func TestGPUsAreInTheDefinition(t *testing.T) {
	t.Parallel()
	_, b := openCloud(t)
	b.Definition.GPUs = 2
	start(t, b)
	if diff := cmp.Diff(map[types.ResourceType]string{"VCPU": "1", "MEMORY": "2048", "GPU": "2"}, gpusOf(t, b)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if job := b.Job(b.NewName(), "token"); len(job.ContainerOverrides.ResourceRequirements) != 0 || !slices.Contains(job.ContainerOverrides.Command, "ALL") {
		t.Errorf("the job is %+v", job.ContainerOverrides)
	}
}

// moto shows no GPUs of a job, and its containers get none.
func TestGPUsAreInTheDefinitionOfMoto(t *testing.T) {
	t.Parallel()
	moto.URL(t)
	m := awstest.NewMoto(t, &moto, suiteWorker.Path(t), fmt.Sprintf("queue-%d", queues.Add(1)))
	b := (&motoSite{m}).Open("codalab").(*awsbatch.Backend)
	b.Definition.GPUs = 2
	p := start(t, b)
	if diff := cmp.Diff(map[types.ResourceType]string{"VCPU": "1", "MEMORY": "2048", "GPU": "2"}, gpusOf(t, b)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	testenv.Must(t, b.Stop(t.Context(), p))
}

// TestPreviewIsWhatIsSent is the golden file of --dry-run.
func TestPreviewIsWhatIsSent(t *testing.T) {
	t.Parallel()
	c, b := openCloud(t)
	b.Definition.GPUs, b.Definition.HostDir = 1, "/scratch"
	got, err := b.Preview("cl_worker_codalab_0123456789abcdef0123456789abcdef")
	testenv.Must(t, err)
	file := filepath.Join("testdata", "preview.txt")
	if *update {
		testenv.Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	testenv.Must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if n := c.Requests(""); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}
