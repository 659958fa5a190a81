package sbatch_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// The scripts really run, on nodes that have some of the programs that they call.
func TestJobStartsOnlyTheProgramOfItsDigest(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	const content = "#!/bin/sh\necho \"started with $*\"\n"
	sum := sha256.Sum256([]byte(content))
	digest := hex.EncodeToString(sum[:])
	all := []string{"stat", "openssl", "sha256sum"}
	for name, c := range map[string]struct {
		tools   []string
		stamped bool // the script has the file's stamp
		content string
		status  int
	}{
		"the file of the submitter":                      {all, true, content, 0},
		"a copy":                                         {all, false, content, 0},
		"a copy, on a node without openssl":              {[]string{"stat", "sha256sum"}, false, content, 0},
		"a copy, on a node without sha256sum":            {[]string{"stat", "openssl"}, false, content, 0},
		"a node without stat":                            {[]string{"sha256sum"}, true, content, 0},
		"the file of the submitter, on a node with stat": {[]string{"stat"}, true, content, 0},
		"a copy, on a node without both":                 {[]string{"stat"}, false, content, sbatch.MismatchStatus},
		"a node with nothing":                            {nil, true, content, sbatch.MismatchStatus},
		"another program":                                {all, false, content + "echo more\n", sbatch.MismatchStatus},
		"another program of that size":                   {all, false, strings.Replace(content, "started", "STARTED", 1), sbatch.MismatchStatus},
		"none":                                           {all, false, "", sbatch.MismatchStatus},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := sbatch.Program{Path: filepath.Join(dir, "it's a program"), SHA256: digest}
			bin := filepath.Join(dir, "bin")
			testenv.Must(t, os.Mkdir(bin, 0o700))
			for _, tool := range c.tools {
				path, err := exec.LookPath(tool)
				testenv.Must(t, errors.Join(err, os.Symlink(path, filepath.Join(bin, tool))))
			}
			if c.content != "" {
				testenv.WriteProgram(t, p.Path, []byte(c.content))
			}
			if c.stamped {
				out, err := exec.CommandContext(t.Context(), "stat", "-L", "-c", "%i %s %.9Z", p.Path).Output()
				testenv.Must(t, err)
				p.Stamp = strings.TrimSpace(string(out))
			}
			cmd := exec.CommandContext(t.Context(), "/bin/sh")
			cmd.Stdin, cmd.Env = strings.NewReader("#!/bin/sh\n"+p.Exec("exec", sbatch.Quote("/a b"))), []string{"PATH=" + bin}
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			want := "started with exec /a b\n"
			if c.status != 0 {
				want = p.Path + " is not the program that was put there, or openssl and sha256sum are missing: it was not started\n"
			}
			if got := cmd.ProcessState.ExitCode(); got != c.status || !strings.HasSuffix(string(out), want) {
				t.Errorf("status %d, want %d:\n%s", got, c.status, out)
			}
		})
	}
}
