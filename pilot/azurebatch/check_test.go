package azurebatch_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestCheckNamesWhatIsNotMet is the table of an account's faults.
func TestCheckNamesWhatIsNotMet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(s *site)
		want   string // the row that fails; empty for none
	}{
		"all is well":           {change: func(*site) {}},
		"pool that scales to 0": {change: func(s *site) { s.RemoveNodes(); s.SetPool(map[string]any{"enableAutoScale": true}) }},
		"no log container":      {change: func(s *site) { s.Shape.LogContainer = "" }},
		"unknown job":           {change: func(s *site) { s.Backend.Job = "x" }, want: "account and job: read job x: Azure Batch: JobNotFound"},
		"disabled job":          {change: func(s *site) { s.SetJob("disabled") }, want: "account and job: job prod-cpu of account lab is disabled"},
		"pool of no nodes":      {change: func(s *site) { s.RemoveNodes() }, want: "pool: cpus: 0 nodes of standard_d4d_v5, 1 task slot each; pool cpus has no nodes"},
		"pool without Docker":   {change: func(s *site) { s.SetPool(map[string]any{"virtualMachineConfiguration": map[string]any{}}) }, want: "containers: the pool has no container configuration"},
		"no GPUs":               {change: func(s *site) { s.Shape.GPUs = 1 }, want: "pool: cpus: 2 nodes of standard_d4d_v5, 1 task slot each; the machines of pool cpus"},
		"GPUs of several": {change: func(s *site) {
			s.Shape.GPUs = 1
			s.SetPool(map[string]any{"vmSize": "standard_nd96asr_v4", "taskSlotsPerNode": 4})
		}, want: "GPUs: a node runs 4 workers at once"},
		"SAS that may not write": {change: func(s *site) { s.Shape.LogContainer = strings.Replace(s.logs.URL, "sp=rcw", "sp=r", 1) }, want: `log container: the SAS of`},
		"SAS that may not read":  {change: func(s *site) { s.logs.Permit("cw") }, want: "log container: read blob"},
		"wrong SAS":              {change: func(s *site) { s.Shape.LogContainer = s.logs.URL + "x" }, want: "log container: read blob"},
		"login that may not write": {
			change: func(s *site) {
				s.RefusePath("/terminate", http.StatusForbidden, "AuthorizationFailed", "The client does not have authorization to perform action.")
			},
			want: "start and end tasks: end task",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 2)
			test.change(s)
			var failed []string
			for _, f := range s.Check(t.Context()) {
				if !f.OK {
					failed = append(failed, f.Name+": "+f.Text)
				}
				if f.Text == "" || strings.Contains(f.Text, s.logs.Signature) {
					t.Errorf("%+v", f)
				}
			}
			if test.want == "" && len(failed) > 0 || test.want != "" && (len(failed) != 1 || !strings.HasPrefix(failed[0], test.want)) {
				t.Errorf("failed: %q\nwant %s", failed, test.want)
			}
			if n := len(s.IDs("")); n != 0 {
				t.Errorf("the check left %s", fmt.Sprint(s.IDs("")))
			}
		})
	}
}
