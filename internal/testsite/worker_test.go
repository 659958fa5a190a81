package testsite_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// start starts a program of the site as its user, until the test ends.
func start(t *testing.T, s *testsite.Site, dir string, args ...string) *exec.Cmd {
	t.Helper()
	return startProgram(t, s.Program(args...), dir)
}

func startProgram(t *testing.T, cmd *exec.Cmd, dir string) *exec.Cmd {
	t.Helper()
	name := filepath.Base(cmd.Path)
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop(t, cmd)
		if said, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s: %s", name, said)
		}
	})
	return cmd
}

// stop stops a program with a signal, and waits for its end.
func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if cmd.ProcessState != nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // unless it has ended
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", cmd.Args[0], err)
	}
}

// workDir makes a directory of the site's user, which compute nodes see.
func workDir(t *testing.T, s *testsite.Site) string {
	t.Helper()
	dir := filepath.Join(s.Dir, "home", t.Name())
	if err := s.Program("/bin/mkdir", "-p", dir).Run(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Without a configuration file, a worker on a login node runs each bundle as a Slurm job. It learns the limits of QOS and
// associations, so that its runs wait with a sentence.
func TestWorkerRunsBundlesAsSlurmJobs(t *testing.T) {
	t.Parallel()
	s := site(t)
	dir := workDir(t, s)
	bin := wrapped(t, map[string]string{"scontrol": `echo "$*" >>$HERE/asked; exec $BIN/scontrol "$@"` + "\n"})
	program := s.Program("cl-worker", "--server", s.Server, "--password-file", s.PasswordFile(),
		"--tag", "bare", "--tag-exclusive", "--id", "bare", "--bundle-runtime", "slurm", "--work-dir", filepath.Join(dir, "scratch"), "--fetch-private", "127.0.0.1")
	program.Env = append(slices.Clone(program.Env), "PATH="+bin+":"+os.Getenv("PATH"))
	worker := startProgram(t, program, dir)
	bundle := run(t, s, "bare", "hostname; echo $HOME")
	ready(t, s, bundle)
	if got := field(t, s, bundle, "remote"); got != "n1" && got != "n2" { // the hosts have other names
		t.Errorf("remote %q, want the compute node as Slurm calls it", got)
	}
	if got := cl(t, s, "cat", bundle+"/stdout"); !strings.Contains(got, "/"+bundle) {
		t.Errorf("stdout %q", got)
	}
	testenv.Await(t, "the worker has asked for the limits", func() bool {
		return slices.ContainsFunc(lines(filepath.Join(bin, "asked")), func(args string) bool { return strings.HasSuffix(args, "show partition") })
	})
	stop(t, worker)
}

// Researchers start the manager as CodaLab's page about worker managers does. Bundles get pilots, which run
// them in their jobs.
func TestPilotsRunBundlesInTheirJobs(t *testing.T) {
	t.Parallel()
	s := site(t)
	dir := workDir(t, s)
	const jobName = "site-pilots"
	registry, _, _ := strings.Cut(s.Image, "/")
	for _, address := range []string{strings.TrimPrefix(s.Server, "http://"), registry} {
		showToNode(t, "n1", address)
	}
	manager := start(t, s, dir, "cl-worker-manager", "--server", s.Server, "--worker-tag", "pilots", "--worker-tag-exclusive", "--min-workers", "0",
		"--worker-idle-seconds", "1", "--worker-work-dir-prefix", dir, "--worker-fetch-private", "127.0.0.1",
		"slurm-batch", "--job-name", jobName, "--cpus", "1", "--memory-mb", "2048", "--time", "10", "--nodelist", "n1", "--password-file", s.PasswordFile(), "--slurm-work-dir", filepath.Join(dir, "pilots"))
	t.Cleanup(func() {
		if logs, err := filepath.Glob(filepath.Join(dir, "pilots", "*", "*.out")); t.Failed() && err == nil {
			for _, path := range logs {
				if said, err := os.ReadFile(path); err == nil {
					t.Logf("%s: %s", path, said)
				}
			}
		}
	})
	t.Cleanup(func() {
		_ = s.Program(slurmcluster.Chosen().Program("scancel"), "--user="+testsite.User, "--name="+jobName).Run()
	})
	first := run(t, s, "pilots", "hostname; echo $HOME")
	second := run(t, s, "tag=pilots", "cat a/stdout", "a:"+first)
	ready(t, s, first)
	ready(t, s, second)
	remote := field(t, s, first, "remote")
	if !strings.Contains(remote, testsite.User+"-"+jobName+"-") {
		t.Errorf("remote %q, want the pilot's name", remote)
	}
	logs, err := output(s, "cl-worker-manager", "logs", "--server", s.Server, "--password-file", s.PasswordFile(), "--job-name", jobName, "--slurm-work-dir", filepath.Join(dir, "pilots"), first)
	if err != nil || !strings.Contains(logs, first) {
		t.Errorf("logs of the bundle: %v, %s", err, logs)
	}
	var status string
	testenv.Await(t, "an idle pilot ends by itself", func() bool {
		status, err = output(s, "cl-worker-manager", "status", "--server", s.Server, "--password-file", s.PasswordFile(), "--job-name", jobName, "--slurm-work-dir", filepath.Join(dir, "pilots"))
		if err != nil {
			t.Fatalf("%v: %s", err, status)
		}
		return !strings.Contains(status, "RUNNING") && !strings.Contains(status, "PENDING")
	}, &status)
	stop(t, manager)
}

// output runs a program of the site to its end.
func output(s *testsite.Site, args ...string) (string, error) {
	said, err := s.Program(args...).CombinedOutput()
	return string(said), err
}

// showToNode makes an address of this host's loopback one of a node's: nodes have networks of their own.
func showToNode(t *testing.T, node, address string) {
	t.Helper()
	outside := serveForward(t, net.JoinHostPort(hostOfNodes(t), "0"), address)
	inside := exec.Command("/sbin/ip", "netns", "exec", slurmcluster.Chosen().Bridge+"-"+node, mustExecutable(t))
	inside.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", forwardVariable + "=" + address + " " + outside}
	stdin, err := inside.StdinPipe()
	if err == nil {
		err = inside.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // it ends with this
		_ = inside.Wait()
	})
}

func mustExecutable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// forwardVariable has the addresses of a forwarder in a node.
const forwardVariable = "CLTEST_FORWARD"

// forwardInNode is a process of this program in a node's network. It ends with its standard input.
func forwardInNode(addresses string) {
	from, to, _ := strings.Cut(addresses, " ")
	l, err := net.Listen("tcp", from)
	if err != nil {
		panic(err)
	}
	go acceptAll(l, to)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// hostOfNodes is this host's address on the network of the cluster's nodes (scripts/slurm-cluster).
func hostOfNodes(t *testing.T) string {
	t.Helper()
	bridge, err := net.InterfaceByName(slurmcluster.Chosen().Bridge)
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := bridge.Addrs()
	if err != nil || len(addresses) == 0 {
		t.Fatalf("the nodes' network has no address of this host: %v", err)
	}
	ip, _, err := net.ParseCIDR(addresses[0].String())
	if err != nil {
		t.Fatal(err)
	}
	return ip.String()
}

// serveForward listens until the test ends, and passes connections on. It returns its address.
func serveForward(t *testing.T, from, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go acceptAll(l, to)
	return l.Addr().String()
}

func acceptAll(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go forward(in, to)
	}
}

func forward(in net.Conn, to string) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
	_, _ = io.Copy(in, out)
}
