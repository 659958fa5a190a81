package container_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// keys is a program that tries the kernel's keyrings, and keys32 is the same for the 32-bit calls
// of this machine's kernel.
var (
	keys   = testenv.Program{Package: "./testdata/keys"}
	keys32 = testenv.Program{Package: "./testdata/keys", Architecture: map[string]string{"amd64": "386", "arm64": "arm"}[runtime.GOARCH]}
)

// The kernel lets every process of a user read the user's keys by their numbers, even from a user
// namespace. The keys of an account may be Kerberos tickets, for example.
func TestFidelityKeysOfTheAccountAreOutOfReach(t *testing.T) {
	t.Parallel()
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		files := smallRoot(t)
		compat := runs32BitPrograms(t)
		programs := map[string]*testenv.Program{"bin/keys": &keys}
		if compat {
			programs["bin/keys32"] = &keys32
		}
		for name, program := range programs {
			content, err := os.ReadFile(program.Path(t))
			must(t, err)
			files = append(files, imagetest.Executable(name, string(content)))
		}
		c := w.image(t, shellConfig(), files...)
		work := userDir(t)
		c.Binds = []container.Bind{{Source: work, Target: "/work"}}
		other := c
		c.ShellCommand = `
while ! test -e /work/other; do sleep 0.01; done
wanted="of-the-account of-another-bundle $(grep -hx '[0-9 ]*' /work/account /work/other)"
for keys in /bin/keys*; do echo "$keys:"; $keys try $wanted; done
touch /work/done`
		other.ShellCommand = `
keys put of-another-bundle precious >/work/made
mv /work/made /work/other
while ! test -e /work/done; do sleep 0.01; done`
		r := startRequest(t, runRequest{Runtime: w, Container: c, Others: []runRequest{{Runtime: w, Container: other}}},
			keys.Path(t), "within", filepath.Join(work, "account"), "of-the-account", "precious", "--", self, runAsUser)
		if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 0 {
			t.Fatalf("ended with %+v and the output %q", answer, r.output())
		}
		answers := map[string][]string{} // by program
		program := ""
		for line := range strings.Lines(r.output()) {
			line = strings.TrimSpace(line)
			if name, begins := strings.CutSuffix(line, ":"); begins {
				program = name
				continue
			}
			answers[program] = append(answers[program], line)
		}
		areRefused(t, answers["/bin/keys"])
		t.Run("32-bit calls", func(t *testing.T) {
			if !compat {
				t.Skip("this kernel runs 64-bit programs only: it has no 32-bit calls to refuse")
			}
			areRefused(t, answers["/bin/keys32"])
		})
	})
}

// areRefused checks that every call for keys failed as on a kernel without keys.
func areRefused(t *testing.T, answers []string) {
	t.Helper()
	if len(answers) < 3 {
		t.Errorf("too few answers: %q", answers)
	}
	for _, answer := range answers {
		if !strings.HasSuffix(answer, " ENOSYS") {
			t.Errorf("%s, and every call that deals with keys should fail with ENOSYS", answer)
		}
	}
}

// runs32BitPrograms reports whether the kernel has 32-bit calls. Kernels of hardened distributions
// have none, and others refuse them by a boot parameter.
func runs32BitPrograms(t *testing.T) bool {
	t.Helper()
	err := exec.CommandContext(t.Context(), keys32.Path(t), "try").Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, unix.ENOEXEC) {
		t.Fatal(err)
	}
	return !errors.Is(err, unix.ENOEXEC)
}

func TestContainerThatWouldHaveTheAccountsKeysIsRefused(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	for _, tt := range []struct {
		name   string
		kernel forbidden
		want   string // the error; empty if the container runs
	}{
		{"a kernel without keys", forbidden{unix.SYS_KEYCTL, unix.ENOSYS}, ""},
		{"no more keys", forbidden{unix.SYS_KEYCTL, unix.EDQUOT}, "kernel.keys.maxkeys has to be raised"},
		{"keys are forbidden", forbidden{unix.SYS_KEYCTL, unix.EACCES}, "this node does not let a container leave the account's keyring: permission denied"},
		{"no filters", forbidden{unix.SYS_SECCOMP, unix.ENOSYS}, "this node's kernel does not let a container give up system calls (seccomp): function not implemented"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startRequest(t, runRequest{Container: container.Container{SIF: image, Args: []string{"true"}}, Forbidden: tt.kernel})
			answer := r.wait()
			if (tt.want == "") != (answer.Error == "") || !strings.Contains(answer.Error, tt.want) || tt.want != "" && len(answer.Started) > 0 {
				t.Errorf("%+v, want the error %q", answer, tt.want)
			}
		})
	}
}
