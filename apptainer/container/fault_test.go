package container_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// scratchDisk mounts a tmpfs with these options as the scratch directory, in a preparation of a
// host.
func scratchDisk(options, scratch string) string {
	return fmt.Sprintf("mount -t tmpfs -o %s none %s", options, scratch)
}

func TestScratchThatCannotBeUsedIsTheHostsFault(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	fill := "; head -c 64k /dev/zero >%[1]s/others 2>/dev/null || true"
	for _, tt := range []struct{ name, preparation, want string }{
		{"no room", "mount -t tmpfs -o size=64k none %[1]s" + fill, "no space left on device"},
		{"no inodes", "mount -t tmpfs -o nr_inodes=1 none %[1]s", "no space left on device"},
		{"read-only", "mount -t tmpfs -o ro none %[1]s", "read-only file system"},
		{"missing", "rmdir %[1]s", "no such file or directory"},
		{"no directory", "rmdir %[1]s; touch %[1]s", "not a directory"},
		{"noexec, where the image is unpacked", fuseNotOurs + "; mount -t tmpfs -o noexec none %[1]s", "is mounted noexec"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scratch := filepath.Join(userDir(t), "scratch")
			must(t, os.Mkdir(scratch, 0o777))
			must(t, os.Chmod(scratch, 0o777))
			answer := startOnHost(t, fmt.Sprintf(tt.preparation, scratch), container.Container{SIF: image, PrivateDir: scratch, Args: []string{"true"}}).wait()
			if !strings.HasPrefix(answer.Fault, "host") || !strings.Contains(answer.Error, tt.want) || strings.Contains(answer.Error, "\n") {
				t.Errorf("fault %q of %q, want the host's: %s", answer.Fault, answer.Error, tt.want)
			}
		})
	}
}

// TestEveryStepThatMeetsAFullScratchBlamesTheHost gives a container one more inode each time, until
// its command begins. So each step of its start fails once.
func TestEveryStepThatMeetsAFullScratchBlamesTheHost(t *testing.T) {
	t.Parallel()
	image, source := shellImage(t), userDir(t)
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.hasStore() {
			t.Skip("an engine writes to its own disk")
		}
		if w.compression != "" {
			image = compressedShellImage(t, w.compression)
		}
		const enough = 100
		for inodes := 1; ; inodes++ {
			scratch := userDir(t)
			answer := w.startOnHost(t, scratchDisk(fmt.Sprintf("nr_inodes=%d", inodes), scratch), container.Container{
				SIF: image, PrivateDir: scratch, ShellCommand: "exit 7", Dir: "/work/here",
				Binds: []container.Bind{{Source: source, Target: "/work/dep", ReadOnly: true, Exact: true}},
			}).wait()
			if answer.Error == "" && answer.Exit.Code == 7 {
				if inodes < 5 {
					t.Errorf("%d inodes are enough: nothing was tried", inodes)
				}
				return
			}
			if !strings.HasPrefix(answer.Fault, "host") || inodes == enough {
				t.Fatalf("with %d inodes: fault %q of %+v", inodes, answer.Fault, answer)
			}
		}
	})
}

func TestImageThatNoHostCanRunIsNotTheHostsFault(t *testing.T) {
	t.Parallel()
	small := smallRoot(t)
	without := func(name string, more ...imagetest.File) []imagetest.File {
		return append(slices.DeleteFunc(slices.Clone(small), func(f imagetest.File) bool {
			at := strings.TrimSuffix(f.Name, "/")
			return at == name || strings.HasPrefix(at, name+"/")
		}), more...)
	}
	source := userDir(t)
	bind := func(target string) []container.Bind { return []container.Bind{{Source: source, Target: target}} }
	for _, tt := range []struct {
		name  string
		files []imagetest.File
		c     container.Container
		want  string
	}{
		{"/etc/hosts is a full directory", append(slices.Clone(small), imagetest.Directory("etc/hosts"), imagetest.Regular("etc/hosts/x", "")), container.Container{}, "directory not empty"},
		{"a dependency below a link to itself", append(slices.Clone(small), imagetest.Symlink("loop", "loop")), container.Container{Binds: bind("/loop/x")}, "too many symbolic links"},
		{"no shell", without("bin/sh"), container.Container{ShellCommand: "true"}, "the image has no shell"},
		{"a dependency inside a file", small, container.Container{Binds: bind("/etc/passwd/dep")}, "not a directory"},
		{"a dependency in place of a file", small, container.Container{Binds: bind("/etc/passwd")}, "something of another kind"},
		{"a dependency that is led into /proc", append(slices.Clone(small), imagetest.Symlink("in", "proc")), container.Container{Binds: bind("/in")}, "the image's links lead"},
		{"binds inside one another", small, container.Container{Binds: append(bind("/a"), bind("/a/b")...)}, "lies inside"},
		{"a working directory inside a file", small, container.Container{Dir: "/etc/passwd/x"}, "not a directory"},
		{"a command with a zero byte", small, container.Container{ShellCommand: "true\x00"}, "zero byte"},
		{"a command longer than the kernel takes", small, container.Container{ShellCommand: "true " + strings.Repeat("x", 200<<10)}, "the command has 204805 bytes, and Linux takes at most 131071"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := tt.c
			c.SIF = sif(t, v1.Config{Env: []string{"PATH=/bin"}}, tt.files...)
			if c.ShellCommand == "" {
				c.Args = []string{"true"}
			}
			answer := start(t, c).wait()
			if answer.Fault != "request" || !strings.Contains(answer.Error, tt.want) {
				t.Errorf("fault %q of %q, want the request's: %s", answer.Fault, answer.Error, tt.want)
			}
		})
	}
}

func TestDamagedImageIsNotTheHostsFault(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(shellImage(t))
	must(t, err)
	root := strings.Index(string(whole), "hsqs")
	if root < 0 {
		t.Fatal("the image has no squashfs")
	}
	inodes := root + int(binary.LittleEndian.Uint64(whole[root+64:]))
	damaged := func(at int, text string) []byte {
		copied := slices.Clone(whole)
		copy(copied[at:], text)
		return copied
	}
	for _, tt := range []struct {
		name    string
		content []byte
		want    string
		fault   string // unless it is "request"
	}{
		{"empty", nil, "it is not a SIF, or damaged", ""},
		{"a script", []byte("#!/bin/sh\n" + strings.Repeat("true\n", 1000)), "it is not a SIF, or damaged", ""},
		{"cut off", whole[:len(whole)-len(whole)/3], "read oci-config.json: EOF", ""},
		{"no squashfs in it", damaged(root, "nope"), "the image is damaged: it cannot be mounted", ""},
		{"the tables are gone", damaged(root+64, strings.Repeat("\xf0", 32)), "the image is damaged: it cannot be mounted", ""},
		{"its inodes are", damaged(inodes, strings.Repeat("\xf0", 64)), "and the image cannot be unpacked instead: unsquashfs has failed", "host, doubtful"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			image := filepath.Join(userDir(t), "image.sif")
			must(t, os.WriteFile(image, tt.content, 0o644))
			answer := start(t, container.Container{SIF: image, Args: []string{"true"}}).wait()
			if answer.Fault != cmp.Or(tt.fault, "request") || !strings.Contains(answer.Error, tt.want) {
				t.Errorf("fault %q of %q, want %q: %s", answer.Fault, answer.Error, cmp.Or(tt.fault, "request"), tt.want)
			}
		})
	}
}

func TestImageThatIsNotThereIsTheHostsFault(t *testing.T) {
	t.Parallel()
	answer := start(t, container.Container{SIF: filepath.Join(userDir(t), "image.sif"), Args: []string{"true"}}).wait()
	if answer.Fault != "host, doubtful" || !strings.Contains(answer.Error, "no such file or directory") {
		t.Errorf("fault %q of %q", answer.Fault, answer.Error)
	}
}

// Without the report, the caller would not know that the command has run, and it would run again
// elsewhere.
func TestCommandInsideBeginsOnlyIfItsReportSaysSo(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	for _, tt := range []struct {
		fill, want string
		began      bool
	}{
		{"true", "container-enter is started in every container", true},
		{"head -c 64k /dev/zero >root/.container/others || true", "write /.container/report: no space left on device", false},
	} {
		cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-ec", `
			mkdir root; mount -t tmpfs none root; mkdir root/.container root/dev; cp "$1" root/program
			touch root/dev/null; mount --bind /dev/null root/dev/null
			mount -t tmpfs -o size=4k none root/.container; : >root/.container/report
			`+tt.fill+` 2>/dev/null
			exec chroot root /program container-enter`, "sh", enter.Path(t))
		cmd.Dir = userDir(t)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinaryUser(t)}
		stdin, err := cmd.StdinPipe()
		must(t, err)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		must(t, cmd.Start())
		_, err = stdin.Write([]byte(`{"Args": ["/program", "container-enter"], "Dir": "/"}`))
		must(t, err)
		_ = cmd.Wait() // it fails in both cases
		if message := stderr.String(); !strings.Contains(message, tt.want) || strings.Contains(message, "is started in every container") != tt.began {
			t.Errorf("%s: %q, want %q", tt.fill, message, tt.want)
		}
	}
}
