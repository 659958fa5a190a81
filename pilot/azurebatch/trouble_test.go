package azurebatch_test

import (
	"testing"
	"time"
)

// TestTroubleIsToldInTheServicesWords is the table of pools that start no tasks.
func TestTroubleIsToldInTheServicesWords(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		nodes  int
		change func(s *site)
		want   string
		waits  bool // it starts by itself
	}{
		"quota of cores": {
			change: func(s *site) {
				s.SetPool(map[string]any{"targetDedicatedNodes": 4, "resizeErrors": []map[string]any{{
					"code": "AccountCoreQuotaReached", "message": "The specified account has reached core quota", "values": []map[string]any{},
				}}})
			},
			want: "pool cpus cannot grow: AccountCoreQuotaReached: The specified account has reached core quota",
		},
		"formula that fails": {
			change: func(s *site) {
				s.SetPool(map[string]any{"enableAutoScale": true, "autoScaleRun": map[string]any{
					"timestamp": "2026-11-27T00:00:00Z", "error": map[string]any{"code": "FormulaEvaluationFailed", "message": "Undefined symbol."},
				}})
			},
			want: "the autoscale formula of pool cpus fails: FormulaEvaluationFailed: Undefined symbol",
		},
		"no nodes, a formula": {
			change: func(s *site) { s.SetPool(map[string]any{"enableAutoScale": true}) },
			want:   "pool cpus has no nodes: its autoscale formula asks for none so far",
		},
		"no nodes, no formula": {
			change: func(*site) {},
			want:   "pool cpus has no nodes: its target is 0 nodes, and it does not scale by itself",
		},
		"pool that grows": {
			change: func(s *site) { s.SetPool(map[string]any{"allocationState": "resizing"}) },
			want:   "pool cpus is resizing", waits: true,
		},
		"nodes that start": {
			nodes: 2, change: func(s *site) { s.SetNodes("starting", "", "") },
			want: "nodes of pool cpus are starting", waits: true,
		},
		"quota of cores, and busy nodes": {
			nodes: 1, change: func(s *site) {
				s.SetPool(map[string]any{"resizeErrors": []map[string]any{{"code": "AccountCoreQuotaReached", "message": "The specified account has reached core quota"}}})
				s.start(s.t)
			},
			want: "the nodes of pool cpus are busy, and pool cpus cannot grow: AccountCoreQuotaReached: The specified account has reached core quota", waits: true,
		},
		"deallocated nodes": {
			nodes: 2, change: func(s *site) { s.SetNodes("deallocated", "", "") },
			want: "none of the 2 nodes of pool cpus takes tasks: 2 deallocated",
		},
		"unusable nodes": {
			nodes: 2, change: func(s *site) { s.SetNodes("unusable", "DiskFull", "There is not enough disk space on the node.") },
			want: "none of the 2 nodes of pool cpus takes tasks: 2 unusable; tvmps_00000001_d: DiskFull: There is not enough disk space on the node",
		},
		"start task that fails": {
			nodes: 1, change: func(s *site) { s.SetNodes("starttaskfailed", "", "") },
			want: "none of the 1 nodes of pool cpus takes tasks: 1 starttaskfailed; tvmps_00000001_d: its start task failed with exit code 1",
		},
		"preempted nodes": {
			nodes: 3, change: func(s *site) { s.SetNodes("preempted", "", "") },
			want: "none of the 3 nodes of pool cpus takes tasks: 3 preempted",
		},
		"busy nodes": {nodes: 1, change: func(s *site) { s.start(s.t) }, want: "the nodes of pool cpus are busy", waits: true},
		"more slots than a node has": {
			change: func(s *site) { s.Shape.Slots = 4 },
			want:   "a worker takes 4 task slots, and the nodes of pool cpus have 1",
		},
		"pool that is gone": {
			change: func(s *site) { s.SetPool(map[string]any{"missing": true}) },
			want:   "job prod-cpu is on the pool cpus, which does not exist",
		},
		"job that is disabled": {
			change: func(s *site) { s.SetJob("disabled") },
			want:   "job prod-cpu is disabled, and its tasks do not start",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, test.nodes)
			s.t = t
			test.change(s)
			p := s.start(t)
			if got := s.pilots(t)[p.Name]; got.Trouble+got.Reason != "" {
				t.Errorf("at once: %q", got.Trouble+got.Reason)
			}
			s.Age(p.Name, 4*time.Minute)
			got := s.pilots(t)[p.Name]
			if told := map[bool]string{true: got.Reason, false: got.Trouble}[test.waits]; told != test.want || (got.Patience > 0) == test.waits {
				t.Errorf("%q, %q for %s\nwant %q", got.Reason, got.Trouble, got.Patience, test.want)
			}
			before := len(s.Requests())
			s.pilots(t)
			if n := len(s.Requests()) - before; n != 1 {
				t.Errorf("the next look took %d requests", n)
			}
		})
	}
}

func TestSizesOfMachinesWithGPUsAreKnown(t *testing.T) {
	t.Parallel()
	for size, has := range map[string]bool{
		"Standard_NC6": true, "standard_nc6s_v3": true, "Standard_NC24ads_A100_v4": true, "Standard_ND96asr_v4": true, "Standard_NV36ads_A10_v5": true, "Standard_NV12s_v3": true,
		"Standard_NV4as_v4": false, "Standard_ND96isr_MI300X_v5": false, "Standard_NG8ads_V620_v1": false, "Standard_NP10s": false, "Standard_D3_v2": false, "STANDARD_D4D_V5": false,
	} {
		s := newSite(t, 1)
		s.SetPool(map[string]any{"vmSize": size})
		s.Shape.GPUs = 1
		if _, err := s.Start(t.Context(), s.NewName(), token); (err == nil) != has {
			t.Errorf("%s: %v", size, err)
		}
	}
}
