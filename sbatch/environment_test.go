package sbatch_test

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// A login shell before a job runs the account's profile, which takes 40 s on one site. slurmd gave some jobs up
// because of that (slurm.conf(5): BatchStartTimeout).
func TestNoLoginShellRunsBeforeAJob(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *slurm) {
		if s.real != nil {
			setLoginVariable(t)
		}
		env := s.environment(t, s.request(""))
		for _, name := range []string{loginVariable, getUserEnv} {
			if value, found := env[name]; found {
				t.Errorf("the job has %s=%s", name, value)
			}
		}
		r := named(s.request(""), "-login")
		r.LoginEnvironment = true
		env = s.environment(t, r)
		if env[getUserEnv] != "1" || s.real != nil && env[loginVariable] == "" {
			t.Errorf("with the environment of a login shell the job has %s=%q, %s=%q", getUserEnv, env[getUserEnv], loginVariable, env[loginVariable])
		}
	})
}

// Slurm's database may keep a job's environment (slurm.conf(5): AccountingStoreFlags=job_env), and all jobs
// of the account can read it.
func TestEnvironmentOfAJobIsSmallAndStated(t *testing.T) {
	t.Setenv("CLTEST_SECRET", "password")
	t.Setenv("SLURM_CLTEST", "of the submitter")
	t.Setenv("SBATCH_EXPORT", "NONE")
	t.Setenv("SBATCH_GET_USER_ENV", "1")
	onEach(t, func(t *testing.T, s *slurm) {
		r := s.request("")
		r.Env = []string{"PATH=/opt/apptainer/bin:" + sbatch.DefaultPath, "CLTEST_ADDED=a b,c=\"d\"\n"}
		got := s.environment(t, r)
		size := 0
		for name, value := range got {
			size += len(name) + len(value) + 2
			if ofSlurm.MatchString(name) {
				delete(got, name)
			}
		}
		if size > 4<<10 {
			t.Errorf("the environment has %d bytes", size)
		}
		u := testenv.User{Name: "researcher", Home: got["HOME"]} // slurmtest has other homes
		if s.real != nil {
			u = testenv.Researcher(t)
		}
		want := map[string]string{
			"PATH": "/opt/apptainer/bin:" + sbatch.DefaultPath, "CLTEST_ADDED": "a b,c=\"d\"\n", "LANG": "C.UTF-8", "SHELL": "/bin/sh",
			"HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name, "TMPDIR": "/tmp", "ENVIRONMENT": "BATCH",
			"HOSTNAME": cmp.Or(got["HOSTNAME"], "a node"),
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// ofSlurm matches the variables that Slurm itself gives a job: its own and, from 24.11 on, those that make MPI's
// launchers use srun (Slurm src/common/env.c).
var ofSlurm = regexp.MustCompile(`^SLURM|^(I_MPI_)?HYDRA_|^(OMPI|PRTE)_MCA_plm_slurm_args$`)

// environment runs a request as a job that prints its environment, and returns that.
func (s *slurm) environment(t *testing.T, r sbatch.Request) map[string]string {
	t.Helper()
	r.Output, r.Script = filepath.Join(s.dir, r.Name), "#!/bin/sh\ncat /proc/$$/environ\n"
	s.submit(t, r)
	await(t, s.jobs(t, r.Name), in(sbatch.StateCompleted))
	text, err := os.ReadFile(r.Output)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for assignment := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
	}
	if len(env) < 10 {
		t.Fatalf("the job has only %q", slices.Sorted(maps.Keys(env)))
	}
	return env
}

const (
	// loginVariable is set by the account's profile during a test.
	loginVariable = "CLTEST_LOGIN_SHELL"
	// getUserEnv makes slurmd run a login shell (Slurm src/slurmd/slurmd/req.c: _get_user_env).
	getUserEnv = "SLURM_GET_USER_ENV"
)

// setLoginVariable makes login shells of this user export loginVariable until the test ends. Tests of several
// processes may do that at the same time: the last one removes the profile.
func setLoginVariable(t *testing.T) {
	t.Helper()
	home := testenv.Researcher(t).Home
	lock, err := os.Open(home)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH)
	}
	profile := filepath.Join(home, ".bash_profile")
	if err == nil {
		err = atomicfile.Write(profile, []byte("export "+loginVariable+"=yes\n. ~/.profile\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			err = os.Remove(profile)
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = nil // another test needs it
		}
		if err := errors.Join(err, lock.Close()); err != nil {
			t.Error(err)
		}
	})
}
