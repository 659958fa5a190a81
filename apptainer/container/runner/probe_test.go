package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// These are the places of the project's own Makefile and of Debian's packages.
func TestApptainerWithPrivilegesIsFound(t *testing.T) {
	t.Parallel()
	for _, starter := range []string{
		"libexec/apptainer/bin/starter-suid", "libexec/singularity/bin/starter-suid",
		"lib/x86_64-linux-gnu/singularity/bin/starter-suid", "lib/aarch64-linux-gnu/apptainer/bin/starter-suid",
	} {
		dir := t.TempDir()
		program, starter := filepath.Join(dir, "bin/singularity"), filepath.Join(dir, starter)
		for _, file := range []string{program, starter} {
			testenv.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			testenv.Must(t, os.WriteFile(file, nil, 0o755))
		}
		if hasSetuidStarter(program) {
			t.Errorf("%s is not setuid", starter)
		}
		testenv.Must(t, os.Chmod(starter, 0o755|os.ModeSetuid))
		if !hasSetuidStarter(program) {
			t.Errorf("%s is not found", starter)
		}
	}
}
