package explained_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/admin/costs"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// sensor is the energy sensor of a node, as a Cray has one (Slurm
// src/plugins/acct_gather_energy/pm_counters/acct_gather_energy_pm_counters.c). It measures the whole node.
type sensor struct{ dir string }

// sensor gives a node a sensor. The kernel makes the directories of /sys, so that the node gets one of its own, with the
// host's in it.
func (s *slurm) sensor(t *testing.T, node string) sensor {
	t.Helper()
	c := sensor{filepath.Join(filepath.Dir(s.Conf), "../run/sensor-"+node)}
	testenv.Must(t, os.MkdirAll(c.dir, 0o755))
	c.shows(t, 1)
	s.onNode(t, node, `
		host=$(mktemp -d)
		mount --rbind /sys "$host"
		mount -t tmpfs -o mode=0755,size=1m sys /sys
		for entry in "$host"/*; do
			mkdir "/sys/${entry##*/}"
			mount --rbind "$entry" "/sys/${entry##*/}"
		done
		umount --lazy "$host"
		rmdir "$host"
		mkdir -p /sys/cray/pm_counters
		mount --bind `+c.dir+` /sys/cray/pm_counters`)
	return c
}

// shows sets the joules that the sensor has counted.
func (c sensor) shows(t *testing.T, joules int64) {
	t.Helper()
	for name, text := range map[string]string{"energy": fmt.Sprintf("%d J\n", joules), "power": "200 W\n"} {
		path := filepath.Join(c.dir, name)
		testenv.Must(t, os.WriteFile(path+".new", []byte(text), 0o644)) // Slurm never reads half of it
		testenv.Must(t, os.Rename(path+".new", path))
	}
}

// measured waits until Slurm has read the sensor for a job that runs. sstat lets it read the sensor.
func (s *slurm) measured(t *testing.T, job string) {
	t.Helper()
	said := ""
	testenv.Await(t, "Slurm measures job "+job, func() bool {
		said, _ = s.try("sstat", "--noheader", "--parsable2", "--jobs="+job+".batch", "--format=ConsumedEnergyRaw")
		_, err := strconv.ParseUint(said, 10, 64)
		return err == nil
	}, &said)
}

// accounted returns the energy of a job by sacct, in joules. The allocation has none on this cluster, which has no extern
// steps.
func (s *slurm) accounted(t *testing.T, job string) string {
	t.Helper()
	return s.owner(t, "sacct", "--duplicates", "--noheader", "--parsable2", "--jobs="+job+".batch", "--format=ConsumedEnergyRaw")
}

// metered is a site whose runs have a node with a sensor to themselves.
type metered struct {
	*site
	sensor sensor
}

// runs lets a run begin at one reading of the sensor and end at another, and returns it with its job.
func (m metered) runs(t *testing.T, from, to int64) (b *bundle, job string) {
	t.Helper()
	m.sensor.shows(t, from)
	b = m.run(t, "energy", waitsForGo)
	job = b.runs(t)
	m.s.measured(t, job)
	m.sensor.shows(t, to)
	b.goOn(t)
	b.until(t, "ready")
	return b, job
}

// has waits until cl info shows the energy of a run.
func (b *bundle) has(t *testing.T, joules string) {
	t.Helper()
	energy := ""
	testenv.Await(t, "cl info shows "+joules+" J", func() bool {
		energy = b.field(t, "energy")
		return energy == joules
	}, &energy)
}

// The energy of a run is the same in cl info, cl usage, cl-bridge report and sacct.
func TestEnergyOfARunIsThatOfSlurm(t *testing.T) {
	t.Parallel()
	s := start(t)
	const node = "n22" // no other test uses it
	m := metered{sensor: s.sensor(t, node)}
	m.site = startSite(t, s, map[string]partition{
		"energy": {[]string{"Nodes=" + node, "PreemptMode=CANCEL"}, "default = true\n" + hour}, "first": {[]string{"Nodes=" + node, "PriorityTier=10"}, hour},
	})
	lost, lostJob := m.runs(t, 5000, 40) // the sensor begins anew
	b, job := m.runs(t, 1000, 3500)
	b.has(t, "2500")
	resumed, jobs := m.resumes(t)
	for id, want := range map[string]string{job: "2500", jobs[0]: "500", jobs[1]: "1000"} {
		if said := s.accounted(t, id); said != want {
			t.Errorf("sacct says %q J of job %s, want %s", said, id, want)
		}
	}
	t.Logf("sacct says %s J of the job whose sensor began anew", s.accounted(t, lostJob))
	if energy := lost.field(t, "energy"); energy != "None" {
		t.Errorf("a run has %s J whose sensor began anew", energy)
	}
	m.reports(t, map[string]int64{lost.uuid: 0, b.uuid: 2500, resumed.uuid: 1500})
}

// resumes lets a run begin, be preempted, and end in another job, and returns it with its jobs.
func (m metered) resumes(t *testing.T) (b *bundle, jobs []string) {
	t.Helper()
	m.sensor.shows(t, 100)
	b = m.run(t, "energy", waitsForGo, "--resume", "1", "--request-cpus", "64")
	first, second := b.runs(t), ""
	m.s.measured(t, first)
	m.sensor.shows(t, 600)
	other := b.preempt(t, "first")
	b.has(t, "500")
	m.s.owner(t, "scancel", other)
	testenv.Await(t, "another job runs", func() bool {
		second = b.field(t, "job_handle")
		return second != first && b.field(t, "state") == "running"
	}, &second)
	m.s.measured(t, second)
	m.sensor.shows(t, 1600)
	b.goOn(t)
	b.until(t, "ready")
	b.has(t, "1500")
	return b, []string{first, second}
}

// reports compares the energy in cl-bridge report and cl usage; 0 means that a bundle has none.
func (m metered) reports(t *testing.T, want map[string]int64) {
	t.Helper()
	out, err := m.Run(t.Context(), testsite.Base+"/bin/cl-bridge", "report", "--config", m.BridgeConfig(), "--json")
	testenv.Must(t, err)
	var r costs.Report
	testenv.Must(t, json.Unmarshal([]byte(out), &r))
	got, total := map[string]int64{}, int64(0)
	for _, l := range r.Jobs {
		got[l.Bundle] += 0
		if l.EnergyJoules != nil {
			got[l.Bundle] += *l.EnergyJoules
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("cl-bridge report (-want +got):\n%s", d)
	}
	for _, joules := range want {
		total += joules
	}
	usage, err := m.CL(t.Context(), "usage")
	if testenv.Must(t, err); !strings.Contains(usage, codalab.FormatEnergy(total)) {
		t.Errorf("cl usage does not show %d J:\n%s", total, usage)
	}
}
