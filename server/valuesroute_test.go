package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestValuesOfBundlesAreToldToTheirReaders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sweep := s.sweep("valued")
	shared := s.result(sweep, "shared", `{"acc": 0.5}`)
	hidden := s.result(sweep, "hidden", `{"acc": 0.25, "loss": "NaN"}`)
	s.share("alice", "bundle", shared, "public", store.PermissionRead)
	query := codalab.ValueQuery{Bundles: []string{shared, hidden, "0xnone"}, Paths: []string{"/stats.json:acc", "/none"}}
	for user, want := range map[string]codalab.Values{
		"alice": {
			Paths:  []codalab.ValuePath{{Path: "/log.jsonl:-1:step", Bundles: 2}, {Path: "/stats.json:acc", Bundles: 2}, {Path: "/stats.json:loss", Bundles: 1}},
			Values: map[string]map[string]string{shared: {"/stats.json:acc": "0.5"}, hidden: {"/stats.json:acc": "0.25"}},
		},
		"bob": {
			Paths:  []codalab.ValuePath{{Path: "/log.jsonl:-1:step", Bundles: 1}, {Path: "/stats.json:acc", Bundles: 1}},
			Values: map[string]map[string]string{shared: {"/stats.json:acc": "0.5"}},
		},
	} {
		var got struct {
			Data codalab.Values `json:"data"`
		}
		testenv.Must(t, json.Unmarshal([]byte(s.call(user, http.MethodPost, "/interpret/values", query).ok().body), &got))
		if diff := cmp.Diff(want, got.Data); diff != "" {
			t.Errorf("%s is told (-want +got)\n%s", user, diff)
		}
	}
	query.Bundles = make([]string, 5001)
	s.call("alice", http.MethodPost, "/interpret/values", query).says(http.StatusBadRequest, "At most 5000 bundles")
}
