package kubetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Programs returns a root file system with these programs of this machine in /usr/bin, their libraries, a shell, and
// the user worker with the id 1000.
func Programs(tb testing.TB, names ...string) []imagetest.File {
	tb.Helper()
	files := []imagetest.File{
		imagetest.Directory("proc"), imagetest.Directory("sys"), imagetest.Directory("dev"), imagetest.Directory("tmp"), imagetest.Directory("run"), imagetest.Directory("root"),
		imagetest.Regular("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nworker:x:1000:1000::/tmp:/bin/sh\n"),
		imagetest.Regular("etc/group", "root:x:0:\nworker:x:1000:\n"),
		imagetest.Symlink("bin/sh", "/usr/bin/bash"), imagetest.Symlink("bin/bash", "/usr/bin/bash"),
		imagetest.Symlink("usr/bin/sh", "/usr/bin/bash"),
	}
	// squashfs-tools load this library when their threads end.
	have := map[string]bool{}
	for _, library := range libgcc() {
		have[library] = true
		files = append(files, copied(tb, library, library))
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append(names, "bash")))) {
		path, err := exec.LookPath(name)
		testenv.Must(tb, err)
		files = append(files, copied(tb, "/usr/bin/"+name, path))
		for _, library := range libraries(tb, path) {
			if !have[library] {
				have[library] = true
				files = append(files, copied(tb, library, library))
			}
		}
	}
	return files
}

// Self returns the test's own program, under another path.
func Self(tb testing.TB, as string) imagetest.File {
	tb.Helper()
	return copied(tb, as, "/proc/self/exe")
}

func copied(tb testing.TB, to, from string) imagetest.File {
	tb.Helper()
	content, err := os.ReadFile(from)
	testenv.Must(tb, err)
	return imagetest.Executable(to[1:], string(content))
}

func libgcc() []string {
	found, _ := filepath.Glob("/lib/*-linux-gnu/libgcc_s.so.1") // its one error is a wrong pattern
	return found
}

// libraries returns the libraries that a program is linked to.
func libraries(tb testing.TB, program string) (files []string) {
	tb.Helper()
	output, err := exec.CommandContext(tb.Context(), "ldd", program).Output()
	if err != nil {
		return nil // it is linked statically, or a script
	}
	for word := range strings.FieldsSeq(string(output)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	return files
}
