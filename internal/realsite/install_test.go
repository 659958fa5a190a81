package realsite_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	server   = "http://10.78.0.1:2900"
	password = "a password of the site"
	// client are the lines of a shell that make it a client of the server.
	client = "export CL_SERVER=" + server + " CODALAB_USERNAME=researcher CODALAB_PASSWORD='" + password + "'\n"
)

// install installs the product as docs/operators/start.md describes: the packages on the login node
// and on the host of the server, init, doctor, the unit of the user's own manager.
func (s site) install(t *testing.T) {
	t.Helper()
	s.installPackages(t)
	s.startServer(t)
	// Whatever an earlier test has left.
	s.on(t, login, `set -e
systemctl --user disable --now cl-bridge 2>/dev/null || true
scancel --me
rm -rf .config/cl-bridge .codalab /var/tmp/cl-bridge-researcher /shared/researcher/*
umask 077
printf '%s\n' `+quote(password)+` >secret
cl-bridge init --server `+server+` --user researcher --password-file ~/secret --shared /shared/researcher/cl-slurm --partitions main --default main --yes`)
	s.copyTo(t, login, "box.tar", imageArchive(t, s.Root))
	s.on(t, login, "cl-bridge image pull docker-archive:$HOME/box.tar --as codalab/default-cpu && rm box.tar")
	s.followDoctor(t)
	s.on(t, loginRoot, "loginctl enable-linger researcher")
	s.on(t, login, `set -e
cat >>.config/cl-bridge/bridge.toml <<EOF

[queue.again]
partition = "main"
account = "lab"
default_time = "1h"
max_time = "1d"
retry_begun = "on_platform"

[queue.packs]
partition = "main"
account = "lab"
default_time = "5m"
max_time = "1h"
pack_runs = 50
pack_side_by_side = 2
pack_time = "30m"
EOF
systemctl --user daemon-reload
systemctl --user enable --now cl-bridge`)
}

// installPackages installs those of the release in the directory CLTEST_RELEASE.
func (s site) installPackages(t *testing.T) {
	t.Helper()
	for pattern, hosts := range map[string][]string{"cl-slurm_*_amd64.deb": {loginRoot, ""}, "cl-slurm-client_*_amd64.deb": {loginRoot}} {
		found, _ := filepath.Glob(filepath.Join(os.Getenv("CLTEST_RELEASE"), pattern))
		if len(found) != 1 {
			t.Fatalf("the release in CLTEST_RELEASE=%s has the packages %q, want one %s", os.Getenv("CLTEST_RELEASE"), found, pattern)
		}
		content, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		const script = "cat >/tmp/package.deb && dpkg --install /tmp/package.deb && rm /tmp/package.deb"
		for _, host := range hosts {
			args := append(append([]string{}, s.SSH...), host, script)
			if host == "" {
				args = append(append([]string{}, s.Controller...), "sh", "-c", script)
			}
			if out, err := output(t.Context(), content, args...); err != nil {
				t.Fatalf("install %s: %v\n%s", found[0], err, out)
			}
		}
	}
}

// startServer starts a new server on the controller, in place of an earlier one.
func (s site) startServer(t *testing.T) {
	t.Helper()
	s.controller(t, `
start-stop-daemon --stop --quiet --oknodo --retry 30 --pidfile /run/cl-server.pid --name cl-server
rm -rf /srv/cl-server
install -d -m 0700 -o cl-server -g cl-server /srv/cl-server
printf '%s\n' `+quote(password)+` >/srv/cl-server/secret
chown cl-server /srv/cl-server/secret
chmod 0600 /srv/cl-server/secret
as="setpriv --reuid cl-server --regid cl-server --init-groups"
$as cl-server user add --data /srv/cl-server/data --password-file /srv/cl-server/secret researcher
start-stop-daemon --start --quiet --background --make-pidfile --pidfile /run/cl-server.pid --chuid cl-server \
  --output /var/log/cl-server.log --startas /usr/bin/cl-server -- run --data /srv/cl-server/data --listen 10.78.0.1:2900`)
	await(t, "the server lets the researcher in", func() bool {
		_, err := s.try(t.Context(), login, client+"cl uinfo")
		return err == nil
	})
}

// withoutGPUs returns doctor's lines without those about GPUs. The nodes imitate some, without a driver.
func withoutGPUs(said string) string {
	return regexp.MustCompile(`(?m)^.* node\.[\w-]+\.gpu-.*\n`).ReplaceAllString(said, "")
}

// followDoctor applies doctor's advice about a disk with NFS's default options: it states the
// time that the disk needs.
func (s site) followDoctor(t *testing.T) {
	t.Helper()
	said, err := s.try(t.Context(), login, "cl-bridge doctor 2>&1")
	advice := regexp.MustCompile(`(?m)^failed .*disk_settle is 10s; write (disk_settle = "\w+"), or more$`).FindStringSubmatch(said)
	if err == nil || advice == nil || strings.Count(withoutGPUs(said), "\nfailed ") != 1 {
		t.Fatalf("doctor: %v, want one failure, with advice to write a larger disk_settle\n%s", err, said)
	}
	t.Log(advice[0])
	s.on(t, login, "sed -i '1a "+advice[1]+"' .config/cl-bridge/bridge.toml")
}
