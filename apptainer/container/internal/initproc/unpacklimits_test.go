package initproc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// An image's superblock may be wrong, and names may share directories and blocks. So the files on the disk
// decide.
func TestUnpackedFilesAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 20 {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, 100<<10), 0o600))
	}
	testenv.Must(t, os.Truncate(filepath.Join(dir, "0"), 1<<40)) // its hole takes no room
	for _, tt := range []struct {
		name, want string
		limits     unpackLimits
		ofHost     bool
	}{
		{"bytes", "the image's files take more than 1024 KiB, the most that an image may have", unpackLimits{bytes: 1 << 20, entries: 100}, false},
		{"entries", "the image has 20 files and directories or more, and an image may have 15", unpackLimits{bytes: 1 << 30, entries: 15}, false},
		{"room", "there is no room for it in the scratch: of 8796093022207 MiB that were free, its files have taken ", unpackLimits{
			bytes: 1 << 30, entries: 100, image: 1 << 20, shown: "the scratch", disk: diskspace.Space{Total: 1<<63 - 1, Free: 1<<63 - 1},
		}, true},
		{"files of the disk", "there is no room for it in the scratch: of 0 KiB that were free, its files have taken ", unpackLimits{
			bytes: 1 << 30, entries: 100, image: 1 << 20, shown: "the scratch", disk: diskspace.Space{Files: 1<<63 - 1, FreeFiles: 1<<63 - 1},
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.limits.dir = dir
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := tt.limits.watch(ctx)
				_, ofRequest := errors.AsType[*container.RequestError](err)
				if err == nil || !strings.HasPrefix(err.Error(), tt.want) || ofRequest == tt.ofHost {
					t.Errorf("%v, the image's fault: %v; want %q", err, ofRequest, tt.want)
				}
			})
		})
	}
}
