package enter

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// TestOutcomeSaysWhetherTheCommandBegan reads reports as package enter writes them.
func TestOutcomeSaysWhetherTheCommandBegan(t *testing.T) {
	t.Parallel()
	ended, code := syscall.WaitStatus(3<<8), 3
	for name, tt := range map[string]struct {
		reports []Report
		status  syscall.WaitStatus
		code    int
		want    error // of this kind
	}{
		"it ended":                      {[]Report{{Began: true}, {Code: &code}}, 0, 3, nil},
		"its report was lost":           {[]Report{{Began: true}}, ended, 3, nil},
		"nothing was reported":          {nil, ended, 0, container.HostErrorf("")},
		"the program was killed":        {nil, syscall.WaitStatus(syscall.SIGKILL), 0, errors.New("it may begin")},
		"no shell":                      {[]Report{{Failure: container.FailureOf(container.ErrNoShell)}}, ended, 0, container.ErrNoShell},
		"the image is at fault":         {[]Report{{Failure: container.FailureOf(container.InImage(syscall.ENOTDIR))}}, ended, 0, container.RequestErrorf("")},
		"the host lacks something":      {[]Report{{Failure: container.FailureOf(container.HostErrorf("no seccomp"))}}, ended, 0, container.HostErrorf("")},
		"the host has failed somewhere": {[]Report{{Failure: container.FailureOf(syscall.ENOSPC)}}, ended, 0, container.NotBegun(syscall.ENOSPC)},
	} {
		file := filepath.Join(t.TempDir(), "report")
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range tt.reports {
			if err := json.NewEncoder(f).Encode(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		code, err := ReadReport(file).Outcome("apptainer", tt.status, func() string { return "FATAL: it failed" })
		want, got := container.FailureOf(tt.want), container.FailureOf(err)
		if want.Error, got.Error = "", ""; code != tt.code || (err == nil) != (tt.want == nil) || got != want {
			t.Errorf("%s: %d, %v; %+v, want %+v", name, code, err, got, want)
		}
	}
}
