package emptyimage_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/emptyimage"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// squashfs-tools reads it as the file system that it is.
func TestEmptyImageIsASIFOfAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	path := filepath.Join(t.TempDir(), "empty.sif")
	if err := emptyimage.Write(path); err != nil {
		t.Fatal(err)
	}
	config, err := sifconfig.Read(path)
	if err != nil || len(config.Env) > 0 {
		t.Fatalf("%+v, %v", config, err)
	}
	unsquashfs, err := exec.LookPath("unsquashfs")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), unsquashfs, "-lln", "-o", fmt.Sprint(config.Offset), path).CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "drwxr-xr-x 0/0 ") || !strings.HasSuffix(string(out), " squashfs-root\n") {
		t.Errorf("%v: %s", err, out)
	}
	if err := emptyimage.Write(path); err == nil {
		t.Error("another file was overwritten")
	}
}
