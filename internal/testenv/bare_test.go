package testenv_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestBareSlurmRunsJobsOfAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	bare := testenv.BareSlurm(t)
	user := testenv.Researcher(t)
	submit := exec.CommandContext(t.Context(), filepath.Join(bare.Bin, "srun"), "--quiet", "id", "--user", "--name")
	submit.Env, submit.Dir = bare.Env(), "/"
	submit.SysProcAttr = &syscall.SysProcAttr{Credential: user.Credential}
	out, err := submit.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != user.Name {
		t.Errorf("%v: %s", err, out)
	}
	script := exec.CommandContext(t.Context(), filepath.Join(bare.Bin, "sbatch"), "--wait", "--output=/dev/null", "--wrap=test $(id --user --name) = "+user.Name)
	script.Env, script.Dir, script.SysProcAttr = bare.Env(), "/", submit.SysProcAttr
	if out, err := script.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
