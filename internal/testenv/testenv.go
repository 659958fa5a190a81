// Package testenv provides the programs and services that tests need from the machine.
//
// One rule holds for all of them: if something is missing, the test is skipped with a reason. If the
// environment variable CLTEST_REQUIRE, a comma-separated list, names it, the test fails instead. The names
// are slurm, containers, fuse, researcher, postgres, mariadb, docker, moto, azure, oidc, packages,
// kubernetes, promtool, chromium and site;
// containers includes fuse. Under -short everything counts as missing.
//
// scripts/setup, scripts/slurm-cluster, scripts/postgres, scripts/azure-tools, scripts/oidc-provider, scripts/kubernetes and scripts/site provide
// everything but promtool, which Debian's package prometheus has, and chromium, which is Debian's.
package testenv

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
)

// The names for CLTEST_REQUIRE.
const (
	slurm      = "slurm"
	containers = "containers"
	fuse       = "fuse"
	researcher = "researcher"
	postgres   = "postgres"
	packages   = "packages"
	mariadb    = "mariadb"
	docker     = "docker"
	oidc       = "oidc"
	moto       = "moto"
	azure      = "azure"
	realSite   = "site"
	kubernetes = "kubernetes"
	promtool   = "promtool"
	chromium   = "chromium"
)

// shared is the directory that the nodes of the cluster and all users see.
const shared = slurmcluster.Base

// Slurm returns the cluster of scripts/slurm-cluster that the environment variable SLURM
// names. Its controller has just answered.
func Slurm(tb testing.TB) slurmcluster.Cluster {
	tb.Helper()
	need(tb, slurm, nil)
	c := slurmcluster.Chosen()
	for _, path := range []string{filepath.Join(c.Bin, "sbatch"), c.Conf} {
		_, err := os.Stat(path)
		need(tb, slurm, err)
	}
	ping := exec.CommandContext(tb.Context(), filepath.Join(c.Bin, "scontrol"), "ping")
	ping.Env = []string{"SLURM_CONF=" + c.Conf}
	out, err := ping.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(" is UP")) {
		need(tb, slurm, fmt.Errorf("scontrol ping: %s", bytes.TrimSpace(out)))
	}
	return c
}

// Containers checks that an ordinary user can run a container here: with user
// namespaces, FUSE inside them, and the programs that it takes.
func Containers(tb testing.TB) {
	tb.Helper()
	need(tb, containers, nil)
	for _, program := range []string{"squashfuse_ll", "bwrap", "mksquashfs", "unshare"} {
		_, err := exec.LookPath(program)
		need(tb, containers, err)
	}
	probe := exec.CommandContext(tb.Context(), "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ": <>/dev/fuse")
	if os.Geteuid() == 0 { // root may do more than an ordinary user
		u, err := lookUp(researcher)
		need(tb, containers, err)
		probe.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential}
	}
	probe.Dir = "/"
	if out, err := probe.CombinedOutput(); err != nil {
		need(tb, containers, fmt.Errorf("user namespaces and /dev/fuse: %w: %s", err, bytes.TrimSpace(out)))
	}
}

// PrivateNetwork checks that an ordinary user can give a container a private network here.
func PrivateNetwork(tb testing.TB) {
	tb.Helper()
	Containers(tb)
	for _, program := range []string{"slirp4netns", "pasta"} {
		_, err := exec.LookPath(program)
		need(tb, containers, err)
	}
	info, err := os.Stat("/dev/net/tun")
	if err == nil && info.Mode().Perm() != 0o666 {
		err = errors.New("/dev/net/tun is closed to ordinary users")
	}
	need(tb, containers, err)
}

// ImageTool checks that a program is here that scripts/setup installs for tests of
// images: umoci or tar2sqfs.
func ImageTool(tb testing.TB, program string) {
	tb.Helper()
	need(tb, containers, nil)
	_, err := exec.LookPath(program)
	need(tb, containers, err)
}

// Root checks that root runs the test. Only root can unpack devices, owners and
// attributes.
func Root(tb testing.TB) {
	tb.Helper()
	var err error
	if os.Geteuid() != 0 {
		err = errors.New("only root unpacks all that an image holds")
	}
	need(tb, containers, err)
}

// Packages checks that root runs the test, with the programs that install packages of Debian
// and of RPM into a small Debian.
func Packages(tb testing.TB) {
	tb.Helper()
	need(tb, packages, nil)
	if os.Geteuid() != 0 {
		need(tb, packages, errors.New("only root installs packages"))
	}
	for _, program := range []string{"mmdebstrap", "dpkg", "rpm", "groff"} {
		_, err := exec.LookPath(program)
		need(tb, packages, err)
	}
}

// DebianMirror checks that apt-get can be used here, and that Debian's mirror answers.
func DebianMirror(tb testing.TB) {
	tb.Helper()
	need(tb, packages, nil)
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		_, err := exec.LookPath(program)
		need(tb, packages, err)
	}
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodHead, "http://deb.debian.org/debian/dists/stable/InRelease", nil)
	Must(tb, err)
	answer, err := http.DefaultClient.Do(request)
	if err == nil {
		_ = answer.Body.Close() // it is empty
		if answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", request.URL, answer.Status)
		}
	}
	need(tb, packages, err)
}

// User is an ordinary user of this machine.
type User struct {
	Name, Home string
	UID, GID   int
	// Credential starts a program as this user.
	Credential *syscall.Credential
}

// Researcher returns the user that submits jobs. The test runs as that user, or as
// root.
func Researcher(tb testing.TB) User {
	tb.Helper()
	need(tb, researcher, nil)
	u, err := lookUp(researcher)
	need(tb, researcher, err)
	return u
}

// Nobody returns the credential of a user of this host who has no rights: another user than researcher. The test runs as
// root.
func Nobody(tb testing.TB) *syscall.Credential {
	tb.Helper()
	Root(tb)
	u, err := lookUp("nobody")
	need(tb, researcher, err)
	return u.Credential
}

// lookUp returns a user if this process can start programs as that user.
func lookUp(name string) (User, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return User{}, fmt.Errorf("look up user: %w", err)
	}
	uid, uidErr := strconv.ParseUint(found.Uid, 10, 31)
	gid, gidErr := strconv.ParseUint(found.Gid, 10, 31)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return User{}, err
	}
	u := User{
		Name: found.Username, Home: found.HomeDir, UID: int(uid), GID: int(gid),
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}
	switch os.Geteuid() {
	case 0:
	case u.UID:
		u.Credential.NoSetGroups = true // only root may set them
	default:
		return User{}, errors.New("only root can run a test as " + name)
	}
	return u, nil
}

// SubordinateIDs checks that the researcher has a range of user and group ids, and that newuidmap maps them.
func SubordinateIDs(tb testing.TB) {
	tb.Helper()
	user := Researcher(tb)
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		text, err := os.ReadFile(file)
		if err == nil && !strings.Contains("\n"+string(text), "\n"+user.Name+":") {
			err = fmt.Errorf("%s has no range for %s", file, user.Name)
		}
		need(tb, containers, err)
	}
	for _, program := range []string{"newuidmap", "newgidmap"} {
		_, err := exec.LookPath(program)
		need(tb, containers, err)
	}
}

// SharedDir returns an empty directory that belongs to researcher and that the nodes of the cluster see
// under the same path. It is removed at the end of the test; no program may write into it then.
func SharedDir(tb testing.TB) string {
	tb.Helper()
	u := Researcher(tb)
	parent := sharedParent(tb)
	name := strings.ReplaceAll(tb.Name(), "/", "_")
	dir, err := os.MkdirTemp(parent, name[:min(64, len(name))]+"-")
	Must(tb, err)
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove shared directory: %v", err)
		}
	})
	Must(tb, os.Chmod(dir, 0o755))
	Must(tb, os.Chown(dir, u.UID, u.GID))
	return dir
}

// sharedParent returns the directory for directories that other users look into.
func sharedParent(tb testing.TB) string {
	tb.Helper()
	parent := filepath.Join(shared, "test")
	if os.Geteuid() == 0 {
		Must(tb, os.MkdirAll(parent, 0o755))
		Must(tb, os.Chmod(parent, 0o777|os.ModeSticky))
	}
	return parent
}

// runVariable has another value in each run of "make test". Go's cache gives no result of a test that
// has read it before with another value: what the test needs of the machine may have changed.
const runVariable = "CLTEST_RUN"

// UsesMachine makes Go's cache give no result of the calling package's tests to another run of "make test",
// because they depend on the machine's kernel or programs. A test has to call it: Go notes no variables that
// are read before. One call serves all tests of a package, and need makes it.
func UsesMachine() { _ = os.Getenv(runVariable) }

// need ends the test if err is not nil, and under -short.
func need(tb testing.TB, name string, err error) {
	tb.Helper()
	UsesMachine()
	if err == nil && testing.Short() {
		err = errors.New("left out by -short")
	}
	if err != nil {
		lack(tb, os.Getenv("CLTEST_REQUIRE"), name, err)
	}
}

// Parallel lets n tests of this program run at once, unless -parallel is given.
// It suits tests that mostly wait. TestMain calls it.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // a number
	}
}

// SmallDisk mounts a tmpfs with these options, such as "size=4m", on dir until the test ends. It needs root.
func SmallDisk(tb testing.TB, dir, options string) {
	tb.Helper()
	need(tb, containers, nil) // under -short nothing is mounted
	need(tb, containers, syscall.Mount("tmpfs", dir, "tmpfs", 0, options))
	tb.Cleanup(func() {
		// Detached, because a program that another test is just starting may
		// hold our descriptors for a moment.
		Must(tb, syscall.Unmount(dir, syscall.MNT_DETACH))
	})
}

// FUSE makes sure that this process can mount a file system that a program
// serves. It takes root.
func FUSE(tb testing.TB) {
	tb.Helper()
	need(tb, fuse, nil)
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	need(tb, fuse, err)
	dir := tb.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", device.Fd(), os.Getuid(), os.Getgid())
	if err = syscall.Mount("probe", dir, "fuse", 0, options); err == nil {
		err = syscall.Unmount(dir, syscall.MNT_DETACH)
	}
	need(tb, fuse, errors.Join(err, device.Close()))
}

// NetworkDisk mounts a disk that counts as a network's, an empty and read-only one of FUSE,
// and returns its root. The disk goes when the test ends.
func NetworkDisk(tb testing.TB) string {
	tb.Helper()
	FUSE(tb)
	dir := tb.TempDir()
	files, image, root := filepath.Join(dir, "files"), filepath.Join(dir, "image"), filepath.Join(dir, "root")
	Must(tb, errors.Join(os.Mkdir(files, 0o700), os.Mkdir(root, 0o700)))
	for _, args := range [][]string{{"mksquashfs", files, image, "-quiet", "-no-progress"}, {"squashfuse", image, root}} {
		out, err := exec.CommandContext(tb.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", args[0], err, out)
		}
		need(tb, fuse, err)
	}
	tb.Cleanup(func() { Must(tb, syscall.Unmount(root, syscall.MNT_DETACH)) }) // its program ends with it
	return root
}

// Promtool returns the path of Prometheus' promtool.
func Promtool(tb testing.TB) string {
	tb.Helper()
	need(tb, promtool, nil)
	path, err := exec.LookPath("promtool")
	need(tb, promtool, err)
	return path
}

func lack(tb testing.TB, required, name string, err error) {
	tb.Helper()
	names := strings.Split(required, ",")
	if slices.Contains(names, name) || (name == fuse && slices.Contains(names, containers)) {
		tb.Fatalf("CLTEST_REQUIRE names %s, which is missing: %v", name, err)
	}
	tb.Skipf("needs %s: %v", name, err)
}
