package probe_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/internal/disktrial"
	"github.com/cl-slurm/cl-slurm/internal/purgers"
	"github.com/cl-slurm/cl-slurm/internal/tickets"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", name, diff)
	}
}

var now = time.Date(2026, 11, 28, 13, 48, 0, 0, time.UTC)

// node returns the changed report of a node that has everything.
func node(change func(r *probe.Report)) probe.Report {
	r := probe.Report{
		Node: "n1", Choice: &container.Choice{Runtime: runtimes.Builtin},
		Host:  container.Host{Squashfuse: container.Finding{Path: "/usr/bin/squashfuse_ll"}, IDs: container.Finding{Version: "100000-165534"}},
		Locks: &probe.Locks{},
		Facts: &probe.Facts{
			UserNamespaces: probe.Namespaces{Max: "96365"},
			ScratchDir:     "/local", ScratchDisk: &disktrial.Features{Type: "xfs"},
			SharedDir: "/shared", SharedDisk: &disktrial.Features{Type: "nfs4", Options: []string{"vers=4.2", "sec=sys"}, Clone: "operation not supported", Unnamed: "operation not supported"},
			SharedOverlay: "invalid argument", Container: &probe.Trial{Seconds: 0.02}, Now: now,
		},
	}
	change(&r)
	return r
}

const day = probe.Longest(24 * time.Hour)

func TestGoodNodeHasARowForEachCheck(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, c := range node(func(*probe.Report) {}).Checks(7 * day) {
		if c.Verdict != probe.OK {
			t.Errorf("%+v", c)
		}
		lines = append(lines, c.Line())
	}
	golden(t, "good.golden", strings.Join(lines, "\n")+"\n")
}

func TestFaultsOfANodeAreRowsWithTheirMeaningAndRemedy(t *testing.T) {
	t.Parallel()
	const refused = "this node does not let ordinary users make user namespaces."
	krb5 := disktrial.Features{Type: "nfs4", Options: []string{"vers=4.2", "sec=krb5p"}}
	ticket := tickets.Ticket{Kind: tickets.Kerberos, Of: "ann@EXAMPLE.ORG", Expires: now.Add(10 * time.Hour), RenewUntil: now.Add(7 * 24 * time.Hour)}
	var text strings.Builder
	for _, test := range []struct {
		name   string
		change func(r *probe.Report)
	}{
		{"RHEL 7: no user namespaces", func(r *probe.Report) {
			r.Choice, r.Host.Namespaces.Lack, r.Facts.UserNamespaces.Max, r.Facts.Container = nil, refused, "0", nil
		}},
		{"Debian 10: user namespaces are switched off", func(r *probe.Report) {
			r.Choice, r.Host.Namespaces.Lack, r.Facts.UserNamespaces.Clone, r.Facts.Container = nil, refused, "0", nil
		}},
		{"Ubuntu 24.04: AppArmor, and an Apptainer with privileges", func(r *probe.Report) {
			r.Choice, r.Host.Namespaces.Lack, r.Facts.Container = &container.Choice{Runtime: runtimes.Apptainer, Plain: true}, refused, nil
			r.Facts.UserNamespaces.AppArmor, r.Facts.UserNamespaces.Profile = "1", "unconfined"
		}},
		{"slurmd in a container", func(r *probe.Report) {
			r.Choice, r.Host.Namespaces.Lack, r.Facts.UserNamespaces.Nested, r.Facts.Container = nil, refused, true, nil
		}},
		{"few user namespaces", func(r *probe.Report) { r.Facts.UserNamespaces.Max = "15" }},
		{"/dev/fuse is closed", func(r *probe.Report) {
			r.Host.Fuse.Lack = "this node does not let ordinary users open /dev/fuse, which mounts images: its mode has to be 0666."
			r.Facts.Container.Unpacked = true
		}},
		{"no squashfuse", func(r *probe.Report) {
			r.Host.Squashfuse.Lack = "this node lacks the program squashfuse_ll: its package squashfuse has to be installed"
		}},
		{"an old kernel", func(r *probe.Report) { r.Host.Overlay.Lack = "operation not permitted" }},
		{"a container does not run", func(r *probe.Report) { r.Facts.Container.Lack = "run container of x: bwrap: refused." }},
		{"scratch on the network", func(r *probe.Report) { r.Facts.ScratchDisk.Type, r.Facts.ScratchDisk.Network = "lustre", "Lustre" }},
		{"Fedora's /tmp", func(r *probe.Report) {
			r.Facts.Purges = []purgers.Rule{{By: "systemd-tmpfiles", Source: "/usr/lib/tmpfiles.d/tmp.conf", Dir: "/tmp", Age: 2 * 24 * time.Hour}}
		}},
		{"a purged shared disk", func(r *probe.Report) {
			r.Facts.SharedPurges = []purgers.Rule{{By: "find", Source: "/etc/cron.d/purge", Dir: "/shared", Age: 28 * 24 * time.Hour}}
		}},
		{"a soft mount without locks, reflinks or links between directories", func(r *probe.Report) {
			*r.Facts.SharedDisk = disktrial.Features{
				Type: "beegfs", Options: []string{"soft"}, HardLinks: "not from one directory to another: operation not permitted",
				Flock: "function not implemented", RangeLock: "no locks available", Attribute: "operation not supported",
			}
		}},
		{"a disk with nothing", func(r *probe.Report) {
			*r.Facts.SharedDisk = disktrial.Features{Type: "fuse.sshfs", HardLinks: "operation not supported", Symlinks: "operation not permitted", Rename: "a reader lost the file: no such file or directory"}
		}},
		{"expired tickets", func(r *probe.Report) {
			*r.Facts.SharedDisk, r.Facts.Tickets = krb5, []tickets.Ticket{{Kind: tickets.Kerberos, Of: "ann@EXAMPLE.ORG", Expires: now.Add(-time.Minute)}}
		}},
		{"tickets of ten hours, runs of seven days", func(r *probe.Report) {
			*r.Facts.SharedDisk, r.Facts.Tickets = krb5, []tickets.Ticket{ticket}
		}},
		{"AFS without a token", func(r *probe.Report) {
			*r.Facts.SharedDisk, r.Facts.Tickets = disktrial.Features{Type: "afs"}, []tickets.Ticket{ticket}
		}},
		{"the node's clock is behind", func(r *probe.Report) { r.Facts.JobStart = now.Add(42 * time.Second) }},
		{"the node's clock is far behind", func(r *probe.Report) { r.Facts.JobStart = now.Add(time.Hour) }},
	} {
		text.WriteString("# " + test.name + "\n")
		found := false
		for _, c := range node(test.change).Checks(7 * day) {
			if c.Verdict != probe.OK {
				found = true
				text.WriteString(c.Line() + "\n")
				if c.Do == "" || c.Means == "" {
					t.Errorf("%s: a fault has to tell its meaning and the remedy: %+v", test.name, c)
				}
			}
		}
		if !found {
			t.Errorf("%s: no check finds it", test.name)
		}
	}
	golden(t, "faults.golden", text.String())
}

func TestWhatIsWeakAndHarmlessIsToldWithoutAWarning(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(r *probe.Report){
		"/shared: flock locks only within a host; fcntl locks only within a host; the bridge needs none": func(r *probe.Report) {
			r.Locks.Flock, r.Locks.RangeLock = "shared", "shared"
		},
		"/shared is on lustre (flock); many sites purge such disks by policies that no host shows": func(r *probe.Report) {
			r.Facts.SharedDisk.Type, r.Facts.SharedDisk.Options = "lustre", []string{"flock"}
		},
		"/shared: fcntl: no answer within 10s; ":          func(r *probe.Report) { r.Locks.RangeLock = "no answer within 10s" },
		"and is in one itself; containers see only ":      func(r *probe.Report) { r.Facts.UserNamespaces.Nested = true },
		"/etc/subuid: none; in images, root is the only ": func(r *probe.Report) { r.Host.IDs.Lack = "/etc/subuid: none" },
		"(/usr/lib/tmpfiles.d/tmp.conf); no run takes that long": func(r *probe.Report) {
			r.Facts.Purges = []purgers.Rule{{By: "systemd-tmpfiles", Source: "/usr/lib/tmpfiles.d/tmp.conf", Dir: "/tmp", Age: 10 * 24 * time.Hour}}
		},
		"that of ann@EXAMPLE.ORG ends at 2026-12-28 13:48 UTC, in 30 days": func(r *probe.Report) {
			r.Facts.SharedDisk.Options = []string{"sec=krb5"}
			r.Facts.Tickets = []tickets.Ticket{{Kind: tickets.Kerberos, Of: "ann@EXAMPLE.ORG", Expires: now.AddDate(0, 0, 30)}}
		},
	} {
		found := false
		for _, c := range node(change).Checks(7 * day) {
			found = found || strings.Contains(c.Text(), want)
			if c.Verdict != probe.OK {
				t.Errorf("%s: %+v", want, c)
			}
		}
		if !found {
			t.Errorf("no row has %q", want)
		}
	}
	if got := node(func(r *probe.Report) { r.Facts = nil }).Checks(0); got != nil {
		t.Errorf("the report of an older cl-worker: %+v", got)
	}
}

func TestNameOfAPurgedDiskIsAWarningWithoutARule(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{
		"/lustre/scratch/ann/cl": `warning purges: no rule here removes files of /lustre/scratch/ann/cl, and its name has "scratch": many sites purge such disks from elsewhere; if this one does, `,
		"/home/ann/cl":           "",
	} {
		if got := said(probe.CheckPurges("purges", dir, nil, 0)); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %s", dir, got)
		}
	}
}

func TestSettingsOfTheKernelAreRead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/sys/user/max_user_namespaces": "15\n", "proc/sys/kernel/unprivileged_userns_clone": "1\n",
		"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "proc/self/attr/apparmor/current": "unconfined\n",
		"proc/self/uid_map": "         0       1001          1\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := probe.Namespaces{Max: "15", Clone: "1", AppArmor: "1", Profile: "unconfined", Nested: true}
	if got := probe.LookAtNamespaces(root); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := probe.LookAtNamespaces(t.TempDir()); got != (probe.Namespaces{}) {
		t.Errorf("a kernel without settings: %+v", got)
	}
}
