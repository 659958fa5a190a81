package purgers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/purgers"
)

// host makes a host with these files.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func said(rules []purgers.Rule) string {
	var lines []string
	for _, r := range rules {
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "\n")
}

// The files are those of systemd 252, of RHEL's tmpwatch and of Debian's tmpreaper, and lines of sites.
func TestRuleThatRemovesFilesOfAPathIsFound(t *testing.T) {
	t.Parallel()
	const fedora = "# Clear tmp directories separately\nq /tmp 1777 root root 10d\nq /var/tmp 1777 root root 30d\n"
	for _, test := range []struct {
		files      map[string]string
		path, want string
	}{
		{map[string]string{"usr/lib/tmpfiles.d/tmp.conf": "D /tmp 1777 root root -\n#q /var/tmp 1777 root root 30d\n"}, "/tmp/x", ""}, // Debian 12
		{map[string]string{"usr/lib/tmpfiles.d/tmp.conf": fedora}, "/tmp/x", "systemd-tmpfiles removes what is older than 10d below /tmp (/usr/lib/tmpfiles.d/tmp.conf)"},
		{map[string]string{"usr/lib/tmpfiles.d/tmp.conf": fedora}, "/home/ann", ""},
		{map[string]string{"usr/lib/tmpfiles.d/tmp.conf": fedora, "etc/tmpfiles.d/tmp.conf": "# nothing is cleaned\n"}, "/tmp/x", ""},
		{map[string]string{"usr/lib/tmpfiles.d/tmp.conf": fedora, "etc/tmpfiles.d/lab.conf": "x /tmp/lab\n"}, "/tmp/lab/x", ""},
		{map[string]string{"usr/lib/tmpfiles.d/tmp.conf": fedora, "etc/tmpfiles.d/lab.conf": "X /tmp/lab\n"}, "/tmp/lab/x", "systemd-tmpfiles removes what is older than 10d below /tmp (/usr/lib/tmpfiles.d/tmp.conf)"},
		{map[string]string{"usr/lib/tmpfiles.d/tmp.conf": fedora, "etc/tmpfiles.d/lab.conf": "X /tmp/lab\n"}, "/tmp/lab", "systemd-tmpfiles removes what is older than 10d below /tmp (/usr/lib/tmpfiles.d/tmp.conf)"},
		{map[string]string{"etc/tmpfiles.d/s.conf": "e /scratch/*/work - - - abc:1w2d\n"}, "/scratch/ann/work/x", "systemd-tmpfiles removes what is older than 9d below /scratch/*/work (/etc/tmpfiles.d/s.conf)"},
		{map[string]string{"etc/tmpfiles.d/s.conf": "e /scratch/*/work - - - 12h\n"}, "/scratch/ann/keep", ""},
		{map[string]string{"etc/tmpfiles.d/s.conf": "f /scratch/x - - - 1d\nd /scratch 0755 root root 0\ne! %T - - - ~90\nz\n"}, "/tmp/x", "systemd-tmpfiles removes what is older than 1m30s below /tmp (/etc/tmpfiles.d/s.conf)"},
		{
			map[string]string{"etc/cron.daily/tmpwatch": "#! /bin/sh\nflags=-umc\n/usr/sbin/tmpwatch \"$flags\" -x /tmp/.X11-unix -x /tmp/lab \\\n\t10d /tmp\n/usr/sbin/tmpwatch \"$flags\" 720 /var/tmp /scratch\n"},
			"/scratch/ann", "tmpwatch removes what is older than 30d below /scratch (/etc/cron.daily/tmpwatch)",
		},
		{map[string]string{"etc/cron.daily/tmpwatch": "/usr/sbin/tmpwatch -x /tmp/lab 10d /tmp\n"}, "/tmp/lab/x", ""},
		{map[string]string{"etc/cron.d/purge": "0 3 * * * root find /scratch /work -xdev -type f -atime +28 -delete && logger done\n"}, "/work/ann/x", "find removes what is older than 28d below /work (/etc/cron.d/purge)"},
		{map[string]string{"etc/crontab": "0 3 * * * root cd / ; /usr/bin/find /scratch -mmin +90 -print0 | xargs -0 rm -f\n"}, "/scratch/x", "find removes what is older than 1h30m0s below /scratch (/etc/crontab)"},
		{map[string]string{"etc/crontab": "0 3 * * * root find /scratch -atime +28 -print\n0 3 * * * root find /scratch -name core -delete\n"}, "/scratch/x", ""},
		{map[string]string{"etc/tmpreaper.conf": "SHOWWARNING=false\nTMPREAPER_TIME=14d\nTMPREAPER_DIRS='/tmp/. /var/tmp/.'\n"}, "/var/tmp/x", "tmpreaper removes what is older than 14d below /var/tmp (/etc/tmpreaper.conf)"},
		{map[string]string{"etc/tmpreaper.conf": "SHOWWARNING=true\n"}, "/tmp/x", ""},
		{map[string]string{"etc/tmpreaper.conf": "SHOWWARNING=false\n", "etc/tmpfiles.d/a.conf": "d /tmp - - - 1d"}, "/tmp", "systemd-tmpfiles removes what is older than 1d below /tmp (/etc/tmpfiles.d/a.conf)\ntmpreaper removes what is older than 7d below /tmp (/etc/tmpreaper.conf)"},
	} {
		if got := said(purgers.Find(host(t, test.files), test.path)); got != test.want {
			t.Errorf("%s with %q:\n%s\nwant\n%s", test.path, test.files, got, test.want)
		}
	}
}

// Sites mount a disk at one path, and give people another one.
func TestRuleIsFoundThroughSymbolicLinks(t *testing.T) {
	t.Parallel()
	const tmp = "D /tmp 1777 root root 10d\nx /tmp/lab\n"
	found := func(age, dir, source string) string {
		return "systemd-tmpfiles removes what is older than " + age + " below " + dir + " (" + source + ")"
	}
	for _, test := range []struct {
		links             map[string]string // by their paths
		rules, path, want string
	}{
		{map[string]string{"scratch": "/mnt/lustre/scratch"}, "d /mnt/lustre - - - 30d\n", "/scratch/ann", found("30d", "/mnt/lustre", "/etc/tmpfiles.d/a.conf")},
		{map[string]string{"scratch": "mnt/../mnt/lustre"}, "d /scratch - - - 30d\n", "/mnt/lustre/ann", found("30d", "/scratch", "/etc/tmpfiles.d/a.conf")},
		{map[string]string{"tmp": "/var/tmp"}, tmp, "/tmp/ann", found("10d", "/tmp", "/etc/tmpfiles.d/a.conf")},
		{map[string]string{"tmp": "/var/tmp"}, tmp, "/tmp/lab/x", ""},
		{map[string]string{"data": "/mnt", "mnt/ann": "../home/ann"}, "d /mnt - - - 30d\n", "/data/ann/x", ""},
		{map[string]string{"data": "/mnt"}, "d /data/*/old - - - 30d\n", "/mnt/ann/old/x", found("30d", "/data/*/old", "/etc/tmpfiles.d/a.conf")},
		{map[string]string{"a": "/b", "b": "/a"}, "d /a - - - 30d\n", "/a/x", found("30d", "/a", "/etc/tmpfiles.d/a.conf")},
	} {
		root := host(t, map[string]string{"etc/tmpfiles.d/a.conf": test.rules})
		for _, dir := range []string{"mnt/lustre", "var/tmp", "home/ann"} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, target := range test.links {
			if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
		if got := said(purgers.Find(root, test.path)); got != test.want {
			t.Errorf("%s with %q and %v:\n%s\nwant\n%s", test.path, test.rules, test.links, got, test.want)
		}
	}
}

func TestNamesOfDisksThatSitesPurgeAreSuspicious(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/scratch/ann/cl": "scratch", "/lustre/Scratch3/ann": "Scratch3", "/gpfs/work/ann": "", "/home/ann/x": "", "/purged_90d/ann": "purged_90d",
	} {
		if got := purgers.Suspicious(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// Any local user may have a say in some of these files.
func FuzzFind(f *testing.F) {
	f.Add("q /tmp 1777 root root 10d\nx /tmp/a*\n", "/usr/sbin/tmpwatch -x /tmp/b 10d /tmp\nfind /tmp -atime +1 -exec rm {} ;\n")
	f.Add("d / - - - 99999999999999999999w\ne [ - - - 1d\n", "find -atime + -delete\ntmpwatch -x\nfind /[ -a -atime\n")
	f.Fuzz(func(t *testing.T, conf, cron string) {
		root := host(t, map[string]string{"etc/tmpfiles.d/a.conf": conf, "etc/cron.d/a": cron})
		for _, r := range purgers.Find(root, "/tmp/a") {
			if r.Dir == "" || r.By == "" || r.Source == "" {
				t.Errorf("%+v", r)
			}
		}
	})
}
