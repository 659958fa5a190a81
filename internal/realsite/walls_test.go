package realsite_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container/walls"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// suite is the tests of a package that run on a node, in a job of a user there.
type suite struct {
	dir   string // of the package, below that of the module
	user  string
	tests []string
}

// The packages of the suites.
const (
	containers = "apptainer/container"
	worker     = "cmd/cl-worker"
	meters     = "worker"
)

// suites are the tests of the walls and of the promises inside of a container, and of the limits. Root submits those that
// need disks of their own; their containers are the researcher's, too.
func suites() []suite {
	inside := []string{
		"TestWallsHold", "TestTableOfDifferencesIsTrue", "TestLimitOfProcessesHoldsWithOneUserNamespace", "TestRootChangesOwnersAndUsersInARange",
		"TestPrivateNetworkReachesOtherMachinesAndNotTheHostsOwnServices", "TestPrivateNetworkTakesNoPacketToTheHostItself",
		"TestForwarderEndsWithItsRun", "TestNetworkOutlivesATermToAllProcesses", "TestProbeTriesThePrivateNetwork",
	}
	for _, b := range walls.Behaviours() {
		for _, test := range b.Tests {
			// Debian's archive is out of reach here. The built-in way has no report.
			if test != "TestFidelityPipInstallsAWheel" && b.Differs[walls.Builtin] == "" || b.OnSomeOnly {
				inside = append(inside, test)
			}
		}
	}
	return []suite{
		{containers, login, inside},
		{containers, loginRoot, []string{"TestFilesOfAKilledContainerAreTheUsersAgain", "TestPrivateNetworkFindsNamesThatOnlyTheHostsOwnServerKnows"}},
		{worker, loginRoot, []string{
			"TestMemoryLimitOfTheJobIsSaidInASentence", "TestMemoryLimitCountsFilesInMemory", "TestRunHasNoMoreProcessesThanItsQueueAllows",
			"TestDiskLimitCountsWhatTheCommandHides", "TestDiskLimitCountsDirectoriesOfOtherIDs", "TestDiskLimitDoesNotCountTheImage",
			"TestOnlyAllocatedGPUsAreVisible", "TestNetworkIsByRequestAndByQueue", "TestNothingOfTheJobsEnvironmentIsInItsContainer",
			"TestTimeInWhichSlurmSuspendsAJobDoesNotCount", "TestCancelledJobLeavesPartialResultsAndAnExitRecord",
			"TestKilledWorkerLeavesNoProcess", "TestStatusTellsWhatIsUsed",
		}},
		{meters, login, []string{"TestFilesWithoutNamesCount", "TestOwnProcessesAreMeasured"}},
	}
}

// leftOut are the parts of tests that this node cannot run: of other runtimes, of a kernel that runs 32-bit programs, and
// of a user without subordinate ids.
var leftOut = regexp.MustCompile(`/(apptainer|singularity|docker|podman|kubernetes)|/32-bit_calls$|/builtin/emulated_root_changes_nothing$`)

// suitesDir is the module's directory on the node, as far as the suites need it.
const suitesDir = "/opt/suites"

// The suites of containers run as everywhere, by an ordinary user, in jobs whose cgroups are of version 2. The kernel is
// newer than this machine's, and has no cgroups of version 1.
func TestWallsAndLimitsHoldWithCgroupsV2(t *testing.T) {
	s := site{testenv.Site(t)}
	s.control(t, "up")
	s.sendSuites(t)
	// A suite submits jobs of its own, which need its files.
	s.on(t, loginRoot, "scontrol update NodeName=c2 State=DRAIN Reason=test")
	t.Cleanup(func() {
		_, err := s.try(context.WithoutCancel(t.Context()), loginRoot, "scontrol update NodeName=c2 State=RESUME")
		if err != nil {
			t.Error(err)
		}
	})
	for _, u := range suites() {
		t.Run(u.dir+" of "+strings.TrimSuffix(u.user, "@login"), func(t *testing.T) { s.runSuite(t, u) })
	}
}

// runSuite runs a suite in a job, and checks that each of its tests passes with the built-in way.
func (s site) runSuite(t *testing.T, u suite) {
	t.Helper()
	const memory = 1200 << 20
	script := fmt.Sprintf(`set -e
job=$(sed -n 's,^0::\(/.*/job_[0-9]*\)/.*,\1,p' /proc/self/cgroup)
test "$(stat --file-system --format=%%T /sys/fs/cgroup)" = cgroup2fs
test "$(cat "/sys/fs/cgroup$job/memory.max")" = %d
exec env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/var/tmp CLTEST_REQUIRE=slurm,containers,researcher CLTEST_PROGRAMS=%s/programs \
./test -test.v -test.parallel=4 -test.timeout=20m '-test.run=^(%s)$'`, memory, suitesDir, strings.Join(u.tests, "|"))
	out, err := s.try(t.Context(), u.user, fmt.Sprintf("cd / && srun --quiet --nodelist=c1 --chdir=%s --mem=%dM --cpus-per-task=2 sh -c %s 2>&1",
		filepath.Join(suitesDir, u.dir), memory>>20, quote(script)))
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	ends := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+) `).FindAllStringSubmatch(out, -1) {
		ends[line[2]] = line[1]
	}
	for test, end := range ends {
		if end == "SKIP" && !leftOut.MatchString(test) {
			t.Errorf("%s was skipped", test)
		}
	}
	for _, test := range u.tests {
		if ends[test] == "" {
			t.Errorf("%s was not run", test)
		}
	}
	passed := 0
	for _, end := range ends {
		if end == "PASS" {
			passed++
		}
	}
	t.Logf("%d tests and their parts passed", passed)
	if t.Failed() && err == nil {
		t.Log(out)
	}
}

// sendSuites builds the suites and the programs that they need, and brings them to c1.
func (s site) sendSuites(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	testenv.Must(t, err)
	build := func(variables []string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir, c.Env = root, append(append(os.Environ(), "CGO_ENABLED=0"), variables...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %q: %v\n%s", args, err, out)
		}
	}
	const strip = "-ldflags=-s -w"
	for _, u := range suites() {
		if program := filepath.Join(dir, u.dir, "test"); !exists(program) {
			build(nil, "test", "-c", strip, "-o", program, "./"+u.dir)
		}
	}
	programs := filepath.Join(dir, "programs") + "/"
	sources, err := filepath.Glob(filepath.Join(root, containers, "testdata/*/main.go"))
	testenv.Must(t, err)
	packages := []string{"./" + worker}
	for _, source := range sources {
		name := filepath.Base(filepath.Dir(source))
		packages = append(packages, "./"+filepath.Join(containers, "testdata", name))
		if slices.Contains([]string{"calls", "keys"}, name) {
			build([]string{"GOARCH=386"}, "build", strip, "-o", programs+name+"-386", packages[len(packages)-1])
		}
	}
	build(nil, append([]string{"build", strip, "-o", programs}, packages...)...)
	table, err := os.ReadFile(filepath.Join(root, "docs/containers.md"))
	testenv.Must(t, err)
	testenv.Must(t, os.Mkdir(filepath.Join(dir, "docs"), 0o755))
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "docs/containers.md"), table, 0o644))

	packed, err := output(t.Context(), nil, "tar", "-C", dir, "--mode=a+rX", "--owner=root", "--group=root", "-cf", "-", ".")
	testenv.Must(t, err)
	// The tests of workers have their directories, and Slurm's configuration, at the places of this machine.
	const unpack = `set -e
rm -rf ` + suitesDir + `; mkdir -p ` + suitesDir + ` /var/tmp/cl-slurm/cluster/etc /var/tmp/cl-slurm/test
tar -C ` + suitesDir + ` -xf -
chmod 1777 /var/tmp/cl-slurm/test
ln -sf /etc/slurm/slurm.conf /var/tmp/cl-slurm/cluster/etc/slurm.conf`
	if out, err := output(t.Context(), []byte(packed), append(append([]string{}, s.SSH...), "root@c1", unpack)...); err != nil {
		t.Fatalf("send the suites: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		const remove = "rm -rf " + suitesDir + " /var/tmp/cl-slurm"
		if out, err := s.try(context.WithoutCancel(t.Context()), "root@c1", remove); err != nil {
			t.Errorf("%s: %v\n%s", remove, err, out)
		}
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
