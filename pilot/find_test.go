package pilot_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/pilot"
)

func TestPilotIsFoundByAllItsNames(t *testing.T) {
	t.Parallel()
	digits := "0123" + strings.Repeat("a", 28)
	pilots := []pilot.Pilot{
		{Name: "ann-worker-" + "0124" + strings.Repeat("b", 28), Job: "1"},
		{Name: "ann-worker-" + digits, Job: "2"},
		{Name: "cl_worker_lab_" + strings.Repeat("c", 32)},
	}
	want := pilots[1].Name
	for _, texts := range [][]string{
		{want},
		{"host-" + want},
		{digits},
		{digits[:8]},
		{"2"},
		{"n1.cluster-host-" + want},
		{"", "host-" + want},
		{"elsewhere", "host-" + want, "host-" + pilots[0].Name},
	} {
		if got, err := pilot.Find(pilots, texts...); got.Name != want || err != nil {
			t.Errorf("%q: %q, %v", texts, got.Name, err)
		}
	}
	if got, err := pilot.Find(pilots, "cccc"); got.Name != pilots[2].Name || err != nil {
		t.Errorf("cccc: %q, %v", got.Name, err)
	}
	for _, text := range []string{"n1", "012", ""} {
		if got, err := pilot.Find(pilots, text); !errors.Is(err, pilot.ErrNotFound) {
			t.Errorf("%q: %q, %v", text, got.Name, err)
		}
	}
	many := append(pilots, pilot.Pilot{Name: "ann-worker-" + digits[:8] + strings.Repeat("d", 24)})
	if got, err := pilot.Find(many, digits[:6]); !errors.Is(err, pilot.ErrAmbiguous) {
		t.Errorf("%s: %q, %v", digits[:6], got.Name, err)
	}
}
