package realsite_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// The server of the unit, on the login node. Its user is the researcher there, too.
const unitClient = "export CL_SERVER=http://127.0.0.1:2900 CODALAB_USERNAME=researcher CODALAB_PASSWORD='" + password + "'\n"

// wallsOfTheUnit prints what the unit's process may do. It has a mount namespace of its own.
const wallsOfTheUnit = `set -e
pid=$(systemctl show --value --property=MainPID cl-server)
grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/$pid/status | tr -s '\t' ' '
for file in /etc/new /usr/new /home/new /shared/new /var/log/new /var/lib/cl-server/new; do
nsenter --target $pid --mount touch $file 2>/dev/null && echo "writes $file"
done
nsenter --target $pid --mount test ! -e /dev/mem -a ! -e /dev/fuse && echo 'has no devices'
stat --format='data %a %U' /var/lib/cl-server`

// TestServersUnitWorksUnderSystemd starts the server by its unit, and uses it. Nothing of the machine is open to it, and it
// is back after a kill, with its data.
func TestServersUnitWorksUnderSystemd(t *testing.T) {
	s := realSite(t)
	s.startUnit(t)
	walls := s.on(t, loginRoot, wallsOfTheUnit)
	const want = `CapEff: 0000000000000000
CapBnd: 0000000000000000
NoNewPrivs: 1
Seccomp: 2
writes /var/lib/cl-server/new
has no devices
data 700 cl-server`
	if walls != want {
		t.Errorf("the walls are\n%s\nwant\n%s", walls, want)
	}
	const upload = unitClient + "echo kept >note && cl upload note"
	note := s.on(t, login, upload)
	const kill = "pid=$(systemctl show --value --property=MainPID cl-server) && kill -KILL $pid && echo $pid"
	before := s.on(t, loginRoot, kill)
	await(t, "systemd has started the server again", func() bool {
		now := s.on(t, loginRoot, "systemctl show --value --property=MainPID cl-server")
		said, err := s.try(t.Context(), login, unitClient+"cl cat "+note)
		return now != before && err == nil && said == "kept"
	})
	if exposed := s.on(t, loginRoot, "systemd-analyze security --no-pager --threshold=20 cl-server | tail -n 1"); !strings.Contains(exposed, "exposure level") {
		t.Error(exposed)
	} else {
		t.Log(exposed)
	}
}

// TestWorkersUnitRunsBundles starts a worker by its unit of the researcher's own manager. Its run goes on when the worker is
// killed, and ends ready.
func TestWorkersUnitRunsBundles(t *testing.T) {
	s := realSite(t)
	s.startUnit(t)
	s.startRegistry(t)
	// The home is on NFS: the worker has its database on the machine's own disk.
	s.on(t, login, `set -e
systemctl --user stop cl-worker
rm -rf codalab-worker-scratch /var/tmp/cl-worker-2000
mkdir -p .config .codalab
printf '%s\n' CODALAB_SERVER=http://127.0.0.1:2900 'CL_WORKER_FLAGS=--fetch-private 127.0.0.1' >.config/cl-worker.env
`+unitClient+`(umask 077; cl token add --workers "$(hostname)" >.codalab/worker-token)
systemctl --user daemon-reload
systemctl --user start cl-worker`)
	t.Cleanup(func() {
		if out, err := s.try(context.WithoutCancel(t.Context()), login, "systemctl --user stop cl-worker; rm -rf .config/cl-worker.env .codalab/worker-token codalab-worker-scratch /var/tmp/cl-worker-2000"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	bundle := s.on(t, login, unitClient+clLine("run", "--request-docker-image", registry+"/box:latest", "--request-memory", "100m", "echo begun; sleep 20; echo slept"))
	said := func() string { return s.on(t, login, unitClient+"cl cat "+bundle+"/stdout 2>/dev/null || true") }
	ended := func() bool {
		return strings.Contains(" ready failed killed ", " "+s.on(t, login, unitClient+"cl info -f state "+bundle)+" ")
	}
	await(t, "the run prints", func() bool { return said() == "begun" || ended() })
	s.on(t, login, "systemctl --user kill --kill-whom=main --signal=KILL cl-worker")
	await(t, "the run has ended", ended)
	const restarts = "systemctl --user show --value --property=NRestarts cl-worker"
	if got, n := said(), s.on(t, login, restarts); got != "begun\nslept" || n == "0" {
		t.Errorf("the worker was restarted %s times, the run has printed %q and ended so:\n%s\n%s", n, got, s.on(t, login, unitClient+"cl info "+bundle),
			s.on(t, loginRoot, "journalctl --no-pager --lines=30 _SYSTEMD_USER_UNIT=cl-worker.service"))
	}
}

// startUnit starts the server's unit on the login node, with a user of its own.
func (s site) startUnit(t *testing.T) {
	t.Helper()
	s.on(t, loginRoot, `set -e
systemctl stop cl-server; rm -rf /var/lib/cl-server
systemctl start cl-server
systemctl is-active --quiet cl-server
install -m 0600 -o cl-server /dev/null /run/user-password
printf '%s\n' `+quote(password)+` >/run/user-password`)
	t.Cleanup(func() {
		if out, err := s.try(context.WithoutCancel(t.Context()), loginRoot, "systemctl stop cl-server; rm -rf /var/lib/cl-server /run/user-password"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	await(t, "the server has a user", func() bool {
		_, err := s.try(t.Context(), loginRoot, "runuser -u cl-server -- cl-server user add --data /var/lib/cl-server --password-file /run/user-password researcher")
		return err == nil
	})
	await(t, "the server lets the researcher in", func() bool {
		_, err := s.try(t.Context(), login, unitClient+"cl uinfo")
		return err == nil
	})
}

// registry is the address of a registry on the login node.
const registry = "127.0.0.1:5055"

// startRegistry starts the registry, with the image box.
func (s site) startRegistry(t *testing.T) {
	t.Helper()
	s.send(t, "registry")
	s.copyTo(t, loginRoot, "/var/tmp/box.tar", imageArchive(t, s.Root))
	const unit = "systemd-run --quiet --collect --unit=registry /var/tmp/registry " + registry + " box:latest /var/tmp/box.tar"
	s.on(t, loginRoot, "systemctl stop registry 2>/dev/null; "+unit)
	t.Cleanup(func() {
		if out, err := s.try(context.WithoutCancel(t.Context()), loginRoot, "systemctl stop registry; rm -f /var/tmp/registry /var/tmp/box.tar"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// send builds a program of testdata, and brings it to the login node's own disk.
func (s site) send(t *testing.T, name string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	c := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, "./testdata/"+name)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	content, err := os.ReadFile(program)
	testenv.Must(t, err)
	s.on(t, loginRoot, "rm -f /var/tmp/"+name)
	s.copyTo(t, loginRoot, "/var/tmp/"+name, content)
	s.on(t, loginRoot, "chmod 0755 /var/tmp/"+name)
}
