package explained_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

var update = flag.Bool("update", false, "write the golden files of the chosen Slurm")

// second is the second cluster of the chosen Slurm. The first test that needs it starts it.
var second struct {
	once sync.Once
	lock *os.File
	err  error
}

func TestMain(m *testing.M) {
	testenv.Parallel(16) // the tests wait for Slurm, most of them with a container that runs
	code := m.Run()
	if err := errors.Join(endSite(code != 0), endCluster(code != 0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// slurm is the second cluster, and its version.
type slurm struct {
	slurmcluster.Cluster
	researcher *syscall.Credential
	full       string // such as 22.05.8
	version    slurmtest.Version
}

// start returns the second cluster. The machine's tests may use Slurm if the first cluster is up.
func start(t *testing.T) *slurm {
	t.Helper()
	testenv.Slurm(t)
	testenv.Containers(t)
	u := testenv.Researcher(t)
	second.once.Do(func() { second.err = startCluster() })
	if second.err != nil {
		t.Fatal(second.err)
	}
	s := &slurm{Cluster: testenv.Slurm(t), researcher: u.Credential}
	said := s.root(t, "sinfo", "--version")
	s.full, s.version = strings.Fields(said)[1], slurmtest.VersionOf(said)
	return s
}

// startCluster starts the cluster anew, once no other process uses it.
func startCluster() (err error) {
	name := filepath.Join(slurmcluster.Base, "second"+os.Getenv(slurmcluster.Variable)+".use")
	if second.lock, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := syscall.Flock(int(second.lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if err := os.Setenv(slurmcluster.Second, "yes"); err != nil {
		return err
	}
	if err := removeCluster(); err != nil {
		return err
	}
	return script("up")
}

// endCluster ends the cluster. Its logs stay if a test failed.
func endCluster(failed bool) error {
	switch {
	case second.lock == nil:
		return nil
	case failed:
		return script("down")
	}
	return removeCluster()
}

// removeCluster ends the cluster, and removes its files, accounts and limits.
func removeCluster() error {
	if err := script("down"); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(filepath.Dir(slurmcluster.Chosen().Conf)))
}

// script runs scripts/slurm-cluster for the second cluster.
func script(verb string) error {
	var out bytes.Buffer
	c := command.Command{Args: []string{"../../scripts/slurm-cluster", verb}, Env: os.Environ(), Stdout: &out}
	if err := c.Run(context.Background()); err != nil {
		return fmt.Errorf("%w: %s", err, out.String())
	}
	return nil
}

// try runs a program as root, as a client of the cluster.
func (s *slurm) try(args ...string) (string, error) {
	return s.run(nil, args)
}

func (s *slurm) run(as *syscall.Credential, args []string) (string, error) {
	c := command.Command{
		Args: append([]string{s.Program(args[0])}, args[1:]...), Env: append(s.Env(), "LC_ALL=C.UTF-8"), Dir: "/tmp", Credential: as,
	}
	out, err := c.Output(context.Background()) // cleanups too
	return strings.TrimRight(string(out), "\n"), err
}

// root runs a program as root, which has to succeed.
func (s *slurm) root(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.run(nil, args)
	if err != nil {
		t.Fatalf("as root: %q: %v", args, err)
	}
	return out
}

// owner runs a program as the user of the jobs.
func (s *slurm) owner(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.run(s.researcher, args)
	if err != nil {
		t.Fatalf("as researcher: %q: %v", args, err)
	}
	return out
}

// either returns a text of Slurm before 24.11, or that of later versions.
func (s *slurm) either(before, since2411 string) string {
	if s.version.Since(slurmtest.Slurm2411) {
		return since2411
	}
	return before
}

// prologFails makes the prolog of a node fail for the jobs of a partition (scripts/lib/cluster/config.bash: prolog),
// until mend is called.
func (s *slurm) prologFails(t *testing.T, partition, node string) (mend func()) {
	t.Helper()
	fails := filepath.Join(filepath.Dir(s.Conf), "../run/prolog", partition+"."+node)
	testenv.Must(t, os.WriteFile(fails, nil, 0o600))
	return func() { // slurmctld drains a node whose prolog fails
		_ = os.Remove(fails)
		testenv.Await(t, node+" is back", func() bool {
			state, _ := s.try("sinfo", "--noheader", "--nodes="+node, "--partition="+partition, "--format=%T")
			if strings.HasPrefix(state, "idle") {
				return true
			}
			_, _ = s.try("scontrol", "update", "NodeName="+node, "State=RESUME")
			return false
		})
	}
}

// golden returns the path of a golden file of the cluster's Slurm.
func (s *slurm) golden(name string) string {
	if found, _ := filepath.Glob(filepath.Join("testdata", string(s.version)+".*", name)); len(found) > 0 { // the pattern is good
		return found[0]
	}
	return filepath.Join("testdata", s.full, name)
}

// compare compares the sections of a golden file with those of this run. A section is a line that begins without white
// space, and the lines after it. With whole the file has no other sections.
func (s *slurm) compare(t *testing.T, name string, got map[string]string, whole bool) {
	t.Helper()
	path := s.golden(name)
	text, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Errorf("this Slurm has no golden file: run with -update, and read it: %v", err)
	}
	want := sections(string(text))
	if *update {
		if whole {
			clear(want)
		}
		maps.Copy(want, got)
		all := strings.Join(slices.Collect(func(yield func(string) bool) {
			for _, heading := range slices.Sorted(maps.Keys(want)) {
				if !yield(want[heading]) {
					return
				}
			}
		}), "")
		testenv.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(all), 0o600)))
		return
	}
	if !whole {
		maps.DeleteFunc(want, func(heading, _ string) bool { return got[heading] == "" })
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got), run with -update if this is meant:\n%s", path, d)
	}
}

// sections returns the sections of a golden file by their first lines.
func sections(text string) map[string]string {
	found, heading := map[string]string{}, ""
	for line := range strings.Lines(text) {
		if line[0] != '\t' {
			heading = strings.TrimSuffix(line, "\n")
		}
		found[heading] += line
	}
	return found
}

// failBoot tells slurmctld that the node of a job could not be configured, as programs that boot nodes do. It needs a C
// compiler.
func (s *slurm) failBoot(t *testing.T, id string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "failboot")
	s.root(t, "cc", "-o", program, s.path(t, "testdata/failboot.c"), "-ldl")
	prefix := "/usr"
	if debian := os.Getenv(slurmcluster.Variable); debian != "" {
		prefix = filepath.Join(slurmcluster.Base, "slurm", debian, "root/usr")
	}
	lib := filepath.Join(prefix, "lib/x86_64-linux-gnu")
	s.root(t, filepath.Join(lib, "ld-linux-x86-64.so.2"), "--library-path", lib+"/slurm-wlm:"+lib, program, filepath.Join(lib, "slurm-wlm/libslurmfull.so"), id)
}

// path returns the absolute path of a file of this package.
func (s *slurm) path(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	testenv.Must(t, err)
	return path
}
