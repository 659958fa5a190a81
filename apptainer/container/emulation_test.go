package container_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// installerRoot returns a root with the programs of this Debian machine that install software, and
// with a package to install.
func installerRoot(t *testing.T) []imagetest.File {
	t.Helper()
	files := smallRoot(t)
	have := map[string]bool{}
	for _, f := range files {
		have[f.Name] = true
	}
	add := func(f imagetest.File) {
		if !have[f.Name] {
			have[f.Name] = true
			files = append(files, f)
		}
	}
	copyIn := func(path string) {
		content, err := os.ReadFile(path)
		must(t, err)
		add(imagetest.Executable(path[1:], string(content)))
		for _, library := range libraries(t, path) {
			content, err := os.ReadFile(library)
			must(t, err)
			add(imagetest.Executable(library[1:], string(content)))
		}
	}
	for _, program := range strings.Fields("apt-get chgrp chmod cp dpkg dpkg-deb dpkg-query dpkg-split diff find getent install ldconfig mkfifo mknod rm sed start-stop-daemon su tar useradd xz") {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Skipf("needs the programs of Debian: %v", err)
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			t.Fatal(err)
		}
		copyIn(path)
		if name := "bin/" + program; !have[name] {
			add(imagetest.Symlink(name, path))
		}
	}
	methods, err := filepath.Glob("/usr/lib/apt/methods/*")
	must(t, err)
	for _, method := range methods {
		copyIn(method)
	}
	modules, err := filepath.Glob("/lib/*/security/pam_*.so")
	must(t, err)
	for _, module := range modules {
		switch filepath.Base(module) {
		case "pam_rootok.so", "pam_permit.so":
			copyIn(module)
		}
	}
	nss, err := filepath.Glob("/lib/*/libnss_files.so.2")
	must(t, err)
	for _, library := range nss {
		copyIn(library)
	}
	regular := func(name, content string, mode int64, gid int) {
		f := imagetest.Regular(name, content)
		f.Mode, f.Gid = mode, gid
		add(f)
	}
	files = deleteNamed(files, "etc/passwd")
	delete(have, "etc/passwd")
	regular("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n_apt:x:42:65534::/nonexistent:/bin/false\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n", 0o644, 0)
	regular("etc/group", "root:x:0:\nshadow:x:42:\nnogroup:x:65534:\n", 0o644, 0)
	regular("etc/shadow", "root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n", 0o640, 42)
	regular("etc/gshadow", "root:*::\n", 0o640, 42)
	regular("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\n", 0o644, 0)
	regular("etc/login.defs", "UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nUSERGROUPS_ENAB yes\n", 0o644, 0)
	for _, service := range []string{"su", "su-l", "other", "useradd"} {
		regular("etc/pam.d/"+service, "auth sufficient pam_rootok.so\nauth required pam_permit.so\naccount required pam_permit.so\nsession required pam_permit.so\npassword required pam_permit.so\n", 0o644, 0)
	}
	for _, dir := range strings.Fields("tmp root home etc/apt etc/apt/apt.conf.d etc/apt/preferences.d etc/apt/trusted.gpg.d var/lib/dpkg/info var/lib/dpkg/updates var/lib/dpkg/triggers var/lib/apt/lists/partial var/cache/apt/archives/partial var/log/apt") {
		add(imagetest.Directory(dir))
	}
	tables, err := filepath.Glob("/usr/share/dpkg/*table")
	must(t, err)
	for _, table := range tables {
		content, err := os.ReadFile(table)
		must(t, err)
		regular(table[1:], string(content), 0o644, 0)
	}
	regular("var/lib/dpkg/status", "", 0o644, 0)
	regular("etc/apt/sources.list", "deb [trusted=yes] file:/repository ./\n", 0o644, 0)
	deb := debianPackage(t)
	for _, name := range []string{"var/of", "var/of/uid1000"} {
		dir := imagetest.Directory(name)
		dir.Uid, dir.Gid, dir.Mode = 1000, 1000, 0o700
		add(dir)
	}
	regular("var/of/uid1000/file", "of gid 42\n", 0o600, 42)
	regular("repository/hello.deb", string(deb), 0o644, 0)
	regular("repository/Packages", fmt.Sprintf("Package: hello-test\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@localhost>\nFilename: ./hello.deb\nSize: %d\nSHA256: %x\nDescription: a test\n\n", len(deb), sha256.Sum256(deb)), 0o644, 0)
	regular("archive.tar", string(archiveOfOthers(t)), 0o644, 0)
	return files
}

func deleteNamed(files []imagetest.File, name string) (rest []imagetest.File) {
	for _, f := range files {
		if f.Name != name {
			rest = append(rest, f)
		}
	}
	return rest
}

// archiveOfOthers returns a tar archive whose files belong to several ids.
func archiveOfOthers(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Name: "of/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1000, Gid: 1000},
		{Name: "of/user", Typeflag: tar.TypeReg, Mode: 0o644, Uid: 1000, Gid: 100},
		{Name: "of/shadow", Typeflag: tar.TypeReg, Mode: 0o640, Gid: 42},
		{Name: "of/fifo", Typeflag: tar.TypeFifo, Mode: 0o644, Uid: 7},
		{Name: "of/link", Typeflag: tar.TypeSymlink, Linkname: "user", Uid: 1000},
	} {
		must(t, w.WriteHeader(&h))
	}
	must(t, w.Close())
	return out.Bytes()
}

// debianPackage returns a package with a file and a script that gives it to another user.
func debianPackage(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"DEBIAN/control":       "Package: hello-test\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@localhost>\nDescription: a test\n",
		"DEBIAN/postinst":      "#!/bin/sh\nset -e\nchown nobody:shadow /usr/share/hello/data\n",
		"usr/share/hello/data": "hello\n",
	} {
		name = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(content), 0o755))
	}
	file := filepath.Join(t.TempDir(), "hello.deb")
	output, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", dir, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	deb, err := os.ReadFile(file)
	must(t, err)
	return deb
}

// Under Docker, these commands of root succeed.
func TestFidelityRootInstallsSoftware(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	root := installerRoot(t)
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.plain() && w.singularityCE {
			t.Skip("with SingularityCE the command runs as the user, as the table in docs/containers.md lists")
		}
		c := w.image(t, shellConfig(), root...)
		for name, command := range map[string]string{
			"tar":     "cd /tmp && tar xpf /archive.tar && test -p of/fifo && test -f of/user && test -L of/link",
			"chown":   "touch /tmp/f && chown 1000:1000 /tmp/f && chgrp 42 /tmp/f && chown -hR nobody:shadow /home",
			"cp -a":   "cp -a /var /tmp/copy && test -s /tmp/copy/others",
			"install": "install -o nobody -g shadow -m 750 /bin/sh /tmp/sh && /tmp/sh -c true && install -d -o 5 -g 5 /tmp/dir",
			"mknod":   "mknod /tmp/pipe p && test -p /tmp/pipe && mkfifo /tmp/other",
			"su":      "su -s /bin/sh nobody -c 'echo as nobody' | grep -x 'as nobody'",
			"dpkg":    "dpkg -i /repository/hello.deb && grep -x hello /usr/share/hello/data && dpkg -r hello-test && ! test -e /usr/share/hello",
			"useradd": "useradd -m -u 1000 tester && grep tester /etc/passwd && grep tester /etc/shadow && test -d /home/tester",
			"mv, rm":  "mv /var/others /var/moved && rm /var/moved && echo more >>/etc/shadow && rm -rf /var/of && ! test -e /var/of",
			"apt-get": "apt-get update && apt-get install -y hello-test && grep -x hello /usr/share/hello/data",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run := c
				run.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"}
				run.ShellCommand = command
				r := w.start(t, run)
				if answer := r.wait(); answer.Error != "" || answer.Exit.Code != 0 {
					t.Errorf("%s\nended with %+v and the output\n%s", command, answer, r.output())
				}
			})
		}
		t.Run("emulated root changes nothing", func(t *testing.T) {
			t.Parallel()
			emulatedRootChangesNothing(t, w, c)
		})
	})
}

// emulatedRootChangesNothing leans on the filter of package seccomp alone: without it the kernel
// refuses these calls.
func emulatedRootChangesNothing(t *testing.T, w testRuntime, c container.Container) {
	t.Helper()
	c.ShellCommand = "cat /proc/self/uid_map"
	if fields := strings.Fields(w.shell(t, c)); len(fields) != 3 || fields[0] != "0" || fields[2] != "1" {
		t.Skip("root is not emulated: the container has several user ids, or another than root's")
	}
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	c.ShellCommand = `cd /tmp
touch file && chown 1000:42 file && stat -c %u:%g file
mknod null c 1 3 && mknod disk b 8 0 && test -e null -o -e disk || echo no device
su -s /bin/sh nobody -c 'id -u; id -G'
cat /etc/apt/apt.conf.d/*`
	want := "0:0\nno device\n0\n0\n// This container has only one user id.\nAPT::Sandbox::User \"root\";\n"
	if got := w.shell(t, c); got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}
