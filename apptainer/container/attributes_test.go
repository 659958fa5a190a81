package container_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	format "github.com/sylabs/sif/v2/pkg/sif"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// labelledSIF returns a SIF as Apptainer makes them on a host with SELinux.
func labelledSIF(t *testing.T) string {
	t.Helper()
	files := smallRoot(t)
	for i := range files {
		files[i].PAXRecords = map[string]string{"SCHILY.xattr.security.selinux": "system_u:object_r:user_tmp_t:s0\x00"}
	}
	dir := userDir(t)
	squashfs := filepath.Join(dir, "root.squashfs")
	cmd := exec.Command("mksquashfs", "-", squashfs, "-tar", "-quiet", "-no-progress")
	cmd.Stdin = bytes.NewReader(imagetest.TarStream(t, files...))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	content, err := os.Open(squashfs)
	must(t, err)
	defer func() { _ = content.Close() }()
	root, err := format.NewDescriptorInput(format.DataPartition, content, format.OptPartitionMetadata(format.FsSquash, format.PartPrimSys, runtime.GOARCH))
	must(t, err)
	path := filepath.Join(dir, "labelled.sif")
	f, err := format.CreateContainerAtPath(path, format.OptCreateWithDescriptors(root))
	must(t, err)
	must(t, f.UnloadContainer())
	must(t, os.Chmod(path, 0o644))
	return path
}

func TestFidelityImageWithTheLabelsOfItsHostIsWritable(t *testing.T) {
	t.Parallel()
	image := labelledSIF(t)
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.hasStore() {
			t.Skip("an engine does not run SIFs")
		}
		if w.Apptainer != nil && w.Apptainer.Plain {
			t.Skip("without namespaces of ours Apptainer mounts the image itself")
		}
		c := container.Container{SIF: image, ShellCommand: "cat /usr/shipped; touch /made /etc/made /usr/made && rm /etc/passwd && mv /usr/shipped /usr/moved && echo written"}
		r := w.start(t, c)
		answer := r.wait()
		if answer.Error != "" || r.output() != "by the image\nwritten\n" {
			t.Errorf("%+v, output %q", answer, r.output())
		}
		if !strings.Contains(answer.Exit.Note, "selinux) that an overlay of an ordinary user cannot copy") {
			t.Errorf("the note is %q", answer.Exit.Note)
		}
	})
}
