package container_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// A small image may describe files that fill the disk of any node.
func TestSmallImageWithLargeFilesIsToBlameIfThereIsNoRoom(t *testing.T) {
	t.Parallel()
	bomb := sif(t, v1.Config{}, imagetest.Regular("bomb", strings.Repeat("x", 96<<20)))
	usual := sif(t, v1.Config{}, append(smallRoot(t), imagetest.Regular("bomb", strings.Repeat("x", 96<<20)))...)
	for _, tt := range []struct{ name, image, fault, want string }{
		{"a hundred times larger", bomb, "request", " KiB, its files take more than "},
		{"not so much larger", usual, "host", "there is no room for it in "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scratch := userDir(t)
			preparation := fuseNotOurs + "; " + scratchDisk("size=48m", scratch)
			answer := startOnHost(t, preparation, container.Container{SIF: tt.image, PrivateDir: scratch, Args: []string{"/bomb"}}).wait()
			if answer.Fault != tt.fault || !strings.Contains(answer.Error, fuseShut+"; and the image cannot be unpacked instead: ") || !strings.Contains(answer.Error, tt.want) {
				t.Errorf("fault %q of %q, want %q: %s", answer.Fault, answer.Error, tt.fault, tt.want)
			}
		})
	}
}

// The superblock has the number of inodes, so that no file is made.
func TestImageWithTooManyFilesIsNotUnpacked(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(shellImage(t))
	must(t, err)
	root := strings.Index(string(content), "hsqs")
	binary.LittleEndian.PutUint32(content[root+4:], 2_000_001)
	image := filepath.Join(userDir(t), "image.sif")
	must(t, os.WriteFile(image, content, 0o644))
	scratch := userDir(t)
	answer := startOnHost(t, fuseNotOurs, container.Container{SIF: image, PrivateDir: scratch, Args: []string{"true"}}).wait()
	if answer.Fault != "request" || !strings.Contains(answer.Error, "the image has 2000001 files and directories or more, and an image may have 2000000") {
		t.Errorf("fault %q of %q", answer.Fault, answer.Error)
	}
	if made, err := filepath.Glob(scratch + "/*/root/*"); err != nil || len(made) > 0 {
		t.Errorf("made %q, %v", made, err)
	}
}
