package main

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

// allocate submits the execution as a job, whose batch script ends as those of
// a bridge do, and returns the job's id.
func (x *execution) allocate(options ...string) string {
	x.t.Helper()
	must(x.t, copyProgram(cmp.Or(x.program, "/proc/self/exe"), filepath.Join(string(x.layout), "bin", "cl-worker")))
	return strings.TrimSpace(x.slurm("#!/bin/sh\nPATH="+x.path+"$PATH exec "+filepath.Join(string(x.layout), "bin", "cl-worker")+" exec "+x.attempt.SpecPath()+"\n",
		append([]string{
			"sbatch", "--parsable", "--export=ALL", "--propagate=NONE", "--no-requeue", "--open-mode=append",
			"--nodes=1", "--ntasks=1", "--chdir=/", "--output=" + x.attempt.OutputPath(),
		}, options...)...))
}

// slurm runs one of Slurm's commands as researcher.
func (x *execution) slurm(stdin string, args ...string) string {
	x.t.Helper()
	cluster := testenv.Slurm(x.t)
	cmd := exec.Command(filepath.Join(cluster.Bin, args[0]), args[1:]...)
	cmd.Env = append([]string{"SLURM_CONF=" + cluster.Conf, "PATH=" + sbatch.DefaultPath, "HOME=" + testenv.Researcher(x.t).Home}, x.env...)
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: testenv.Researcher(x.t).Credential}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		x.t.Fatalf("%q: %v: %s", args, err, stderr.String())
	}
	return string(out)
}

// copyProgram copies a program to a path that nodes and researcher see.
func copyProgram(program, to string) error {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// recorded waits for the exit record of a job, and for the job's end.
func (x *execution) recorded(job string) spool.Exit {
	x.t.Helper()
	var exit spool.Exit
	testenv.Await(x.t, "job "+job+" has left an exit record", func() bool {
		var err error
		if exit, err = x.attempt.ReadExit(); errors.Is(err, spool.ErrNone) {
			return false
		}
		must(x.t, err)
		return true
	}, func() string {
		said, _ := os.ReadFile(x.attempt.OutputPath())
		return "its output: " + string(said)
	})
	var state string
	testenv.Await(x.t, "job "+job+" has ended", func() bool {
		state = x.slurm("", "squeue", "-a", "-h", "-t", "PD,R,CG,S,CF", "-o", "%T", "--me", "-j", job)
		return state == ""
	}, &state)
	return exit
}

func TestOnlyAllocatedGPUsAreVisible(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	list := "echo /dev/nvidia[0-9]*; echo $CUDA_VISIBLE_DEVICES"
	two := prepare(t, list, func(_ string, s *spool.Spec) { s.GPUs = 2 })
	none := prepare(t, list, nil)
	jobTwo := two.allocate("--partition=gpu", "--gres=gpu:2", "--mem=200M")
	jobNone := none.allocate("--partition=gpu", "--mem=200M")
	if exit := two.recorded(jobTwo); exit.Cause != spool.CauseSucceeded {
		t.Errorf("%+v", exit)
	}
	devices, numbers, _ := strings.Cut(two.file("stdout"), "\n")
	if len(strings.Fields(devices)) != 2 || numbers != "0,1\n" {
		t.Errorf("with two GPUs: %q", two.file("stdout"))
	}
	none.recorded(jobNone)
	if got := none.file("stdout"); got != "/dev/nvidia[0-9]*\n\n" {
		t.Errorf("without GPUs: %q", got)
	}
}

func TestMemoryLimitOfTheJobIsSaidInASentence(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	x := prepare(t, "head -c 300000000 /dev/zero | tail -c 300000000 > /dev/null", func(_ string, s *spool.Spec) { s.MemoryBytes = 100 << 20 })
	exit := x.recorded(x.allocate("--mem=120M"))
	want := regexp.MustCompile(`^Memory limit 100m exceeded \(used 1[0-2]\dm\)\. Ask for more with --request-memory\.$`)
	if exit.Cause != spool.CauseLimit || !want.MatchString(exit.Failure) || exit.Usage.MemoryPeak < 100<<20 || exit.Usage.MemoryPeak > 130<<20 {
		t.Errorf("%+v", exit)
	}
}

func TestCancelledJobLeavesPartialResultsAndAnExitRecord(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	x := prepare(t, "echo ready > began; trap '' TERM; while :; do sleep 0.1; done", nil)
	job := x.allocate("--mem=120M")
	x.awaitCommand()
	x.slurm("", "scancel", job)
	exit := x.recorded(job)
	if !exit.Terminated || exit.ExitCode == nil || *exit.ExitCode != 137 || x.file("began") != "ready\n" {
		t.Errorf("%+v, partial result %q", exit, x.file("began"))
	}
}

// With some kinds of proctrack the TERM of a job reaches its command directly, too (Slurm 26.05,
// proctrack/linuxproc): the command may have ended before its worker acts on its own.
func TestCancelledCommandThatEndsAtOnceWasToldToStop(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	x := prepare(t, "echo ready > began; exec sleep 600", nil)
	job := x.allocate("--mem=120M")
	x.awaitCommand()
	x.slurm("", "scancel", job)
	if exit := x.recorded(job); !exit.Terminated || exit.ExitCode == nil || *exit.ExitCode != 143 || exit.Cause != spool.CausePlatform {
		t.Errorf("%+v", exit)
	}
}

// At a preemption with send_user_signal Slurm signals only the batch script, as scancel --batch does.
func TestCommandHasItsGraceAfterTERM(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	x := prepare(t, "trap 'sleep 2.5; echo saved > checkpoint; exit 5' TERM; echo ready > began; while :; do sleep 0.05; done",
		func(_ string, s *spool.Spec) { s.KillGraceSeconds = 60 })
	job := x.allocate("--mem=120M")
	x.awaitCommand()
	x.slurm("", "scancel", "--batch", "--signal=TERM", job)
	exit := x.recorded(job)
	if !exit.Terminated || exit.ExitCode == nil || *exit.ExitCode != 5 || x.file("checkpoint") != "saved\n" {
		t.Errorf("%+v, checkpoint %q", exit, x.file("checkpoint"))
	}
}

func TestJobThatAsksForApptainerIsAsAnyOther(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	apptainer := findApptainer(t)
	x := prepareRuntime(t, runtimes.Apptainer, 2, "echo /dev/nvidia[0-9]*; echo $CUDA_VISIBLE_DEVICES; echo ready > began; trap 'echo saved; exit 4' TERM; while :; do sleep 0.1; done")
	x.path = filepath.Dir(apptainer) + ":"
	job := x.allocate("--partition=gpu", "--gres=gpu:2", "--mem=300M")
	x.awaitCommand()
	x.slurm("", "scancel", job)
	exit := x.recorded(job)
	if !exit.Terminated || exit.ExitCode == nil || *exit.ExitCode != 4 || exit.Ran.Runtime != runtimes.Apptainer || exit.Usage.MemoryPeak == 0 {
		said, _ := os.ReadFile(x.attempt.OutputPath())
		t.Errorf("%+v; its output: %s", exit, said)
	}
	lines := strings.Split(x.file("stdout"), "\n")
	if len(lines) != 4 || len(strings.Fields(lines[0])) != 2 || lines[1] != "0,1" || lines[2] != "saved" {
		t.Errorf("output %q", lines)
	}
}

// sbatch passes the account's environment on to the job.
func TestNothingOfTheJobsEnvironmentIsInItsContainer(t *testing.T) {
	t.Parallel()
	testenv.Slurm(t)
	for runtime, prepareFor := range map[runtimes.Name]func(t *testing.T, command string) *execution{
		runtimes.Builtin: func(t *testing.T, command string) *execution {
			t.Helper()
			return prepareRuntime(t, runtimes.Builtin, 0, command)
		},
		runtimes.Apptainer: func(t *testing.T, command string) *execution {
			t.Helper()
			apptainer := findApptainer(t)
			x := prepareRuntime(t, runtimes.Apptainer, 0, command)
			x.path = filepath.Dir(apptainer) + ":"
			return x
		},
		runtimes.Docker: func(t *testing.T, command string) *execution {
			t.Helper()
			const image = "localhost/cl-worker-test:environment"
			host := loadImage(t, image)
			x := prepare(t, command, func(_ string, s *spool.Spec) {
				s.Runtime, s.Inputs = runtimes.Docker, spool.Inputs{PinnedReference: image}
			})
			x.program, x.env = shipped.Path(t), []string{"DOCKER_HOST=" + host}
			return x
		},
	} {
		t.Run(string(runtime), func(t *testing.T) {
			t.Parallel()
			x := prepareFor(t, "cat /proc/$$/environ")
			x.env = append(x.env, "CLTEST_SECRET=leaked", "LD_PRELOAD=", "http_proxy=http://leaked", "APPTAINERENV_LEAKED=leaked", "SINGULARITYENV_LEAKED=leaked", "BASH_ENV=/leaked", "LANG=leaked", "TERM=leaked")
			exit := x.recorded(x.allocate("--mem=200M"))
			if exit.Cause != spool.CauseSucceeded || exit.Ran.Runtime != runtime {
				said, _ := os.ReadFile(x.attempt.OutputPath())
				t.Fatalf("%+v; its output: %s", exit, said)
			}
			got := strings.Split(strings.TrimSuffix(x.file("stdout"), "\x00"), "\x00")
			slices.Sort(got)
			got = slices.DeleteFunc(got, func(v string) bool { return v == "PWD=/"+bundle }) // bubblewrap says where it has gone
			want := []string{"CODALAB=true", "CODALAB_ATTEMPT=1", "FROM_IMAGE=yes", "HOME=/" + bundle, "PATH=/bin", "TMPDIR=/" + bundle + "_tmp"}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
