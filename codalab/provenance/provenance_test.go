package provenance_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/provenance"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	runUUID  = "0x11111111111111111111111111111111"
	codeUUID = "0x22222222222222222222222222222222"
	dataUUID = "0x33333333333333333333333333333333"
)

// bundles is a server with these bundles.
type bundles map[string]client.BundleInfo

func (s bundles) Bundle(_ context.Context, uuid string, _ ...string) (client.BundleInfo, error) {
	if b, ok := s[uuid]; ok {
		return b, nil
	}
	return client.BundleInfo{}, &codalab.Error{Status: 404, Message: "Bundle not found"}
}

func (s bundles) ContentsInfo(_ context.Context, t codalab.Target, _ int) (codalab.TargetInfo, error) {
	if t.BundleUUID == codeUUID {
		return codalab.TargetInfo{Type: codalab.TargetFile}, nil
	}
	return codalab.TargetInfo{Type: codalab.TargetDirectory}, nil
}

// site has a run that ended on its second attempt, the directory of its code, and data that the reader may not read.
func site(state codalab.State) bundles {
	command := "python3 train.py --lr 0.1 </b>\n"
	run := codalab.Bundle{
		UUID: runUUID, Type: codalab.TypeRun, State: state, Command: &command,
		Metadata: codalab.Metadata{
			"name": "train", "created": 1700000000, "started": 1700000100, "last_updated": 1700000400, "exitcode": 3.0, "time": 200.5, "memory_max": 1e9,
			"tags":                 []string{"git-commit=0123abcd", "git-branch=main", "git-dirty", "lr=0.1"},
			"request_docker_image": "python:3.12", "docker_image": "python@sha256:" + strings.Repeat("ab", 32), "request_cpus": 2, "request_queue": "gpu", "request_time": "",
			"remote": "n2", "job_handle": "8", "remote_history": []string{"login", "n1 (Slurm job 7 from 2023-11-14T22:14:00Z to 2023-11-14T22:14:40Z)", "n2 (Slurm job 8)"},
		},
		Dependencies: []codalab.Dependency{
			{ChildPath: "train.py", ParentUUID: codeUUID, ParentName: "code", ParentPath: "train.py"},
			{ChildPath: "data", ParentUUID: dataUUID, ParentPath: "train set/a.csv"},
			{ChildPath: "again", ParentUUID: dataUUID, ParentPath: "train set/a.csv"},
		},
		Cost: &codalab.Cost{QueuedSeconds: 12, AllocatedSeconds: 230},
		Platform: &codalab.Platform{
			Site: "big iron", GPUs: []string{"NVIDIA H200", "NVIDIA H200", ""}, GPUDriver: "570.86.15",
			Software: []codalab.Software{{Name: "cl-slurm", Version: "v1.2.3 0123abcd"}, {Name: "Slurm", Version: "24.11.5"}, {Name: "apptainer"}},
			Inputs: []codalab.InputDigest{
				{ChildPath: "train.py", Digest: codalab.FileDigest + strings.Repeat("cd", 32)},
				{ChildPath: "again", Digest: codalab.TreeDigest + strings.Repeat("ef", 32)},
			},
		},
	}
	if state == codalab.StateStaged { // no worker has told anything
		run.Platform = nil
	}
	if state == codalab.StateFailed {
		run.Metadata["failure_message"] = "Exit code 3"
	}
	code := codalab.Bundle{UUID: codeUUID, Type: codalab.TypeDataset, State: codalab.StateReady, Metadata: codalab.Metadata{"name": "code", "tags": []string{"upload=sha256:0f0f"}}}
	return bundles{
		runUUID:  {Bundle: run, Owner: &codalab.User{UserName: "anna b"}},
		codeUUID: {Bundle: code},
	}
}

func document(t *testing.T, from bundles) []byte {
	t.Helper()
	text, err := provenance.Of(t.Context(), from, "https://cl.example", runUUID)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRunIsDescribedWithItsInputsAndItsAttempts(t *testing.T) {
	t.Parallel()
	for _, state := range []codalab.State{codalab.StateReady, codalab.StateFailed, codalab.StateStaged} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			got := document(t, site(state))
			golden := filepath.Join("testdata", string(state)+".json")
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got, or run with -update:\n%s", diff)
			}
		})
	}
}

// What no worker of the server has reported says so.
func TestPlatformOfACopySaysThatItIsImported(t *testing.T) {
	t.Parallel()
	from := site(codalab.StateReady)
	whole := document(t, from)
	from[runUUID].Platform.Imported = true
	const says = "as the archive or the server says from which the run was copied"
	for _, want := range []string{`"description": "Attempt 2 of 2, ` + says + `"`, `"description": "Of the git branch main. The software: ` + says + `"`} {
		if !strings.Contains(string(document(t, from)), want) || strings.Contains(string(whole), want) {
			t.Errorf("the document has no %s", want)
		}
	}
}

// TestEachReferenceLeadsSomewhere: each entity has one id, and each reference is an entity of the document or an address of a
// specification.
func TestEachReferenceLeadsSomewhere(t *testing.T) {
	t.Parallel()
	var d struct {
		Graph []map[string]any `json:"@graph"`
	}
	if err := json.Unmarshal(document(t, site(codalab.StateFailed)), &d); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, e := range d.Graph {
		id, _ := e["@id"].(string)
		if id == "" || ids[id] || e["@type"] == nil {
			t.Errorf("an entity without an id of its own or a type: %v", e)
		}
		ids[id] = true
	}
	var check func(v any)
	check = func(v any) {
		switch x := v.(type) {
		case []any:
			for _, one := range x {
				check(one)
			}
		case map[string]any:
			id, _ := x["@id"].(string)
			if !ids[id] && !strings.HasPrefix(id, "https://w3id.org/ro/") && !strings.HasPrefix(id, "http://schema.org/") {
				t.Errorf("nothing is at %q", id)
			}
		}
	}
	for _, e := range d.Graph {
		for _, v := range e {
			check(v)
		}
	}
}

func TestCrateIsTheSameHoweverOftenABundleIsAdded(t *testing.T) {
	t.Parallel()
	s := site(codalab.StateReady)
	r, err := provenance.Read(t.Context(), s, runUUID)
	if err != nil {
		t.Fatal(err)
	}
	one, two := provenance.New("a", "b", provenance.OnServer("x")), provenance.New("a", "b", provenance.OnServer("x"))
	one.AddRun(r)
	two.AddRun(r)
	two.AddRun(r)
	a, errA := one.JSON()
	b, errB := two.JSON()
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("%v %v: %s", errA, errB, cmp.Diff(string(a), string(b)))
	}
}

// TestValidatorAgrees runs rocrate-validator (https://github.com/crs4/rocrate-validator), whose program
// CLTEST_ROCRATE_VALIDATOR names, with the requirements of the profile.
func TestValidatorAgrees(t *testing.T) {
	t.Parallel()
	validator := os.Getenv("CLTEST_ROCRATE_VALIDATOR")
	if validator == "" {
		t.Skip("CLTEST_ROCRATE_VALIDATOR does not name rocrate-validator")
	}
	for _, state := range []codalab.State{codalab.StateReady, codalab.StateFailed} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, provenance.FileName), document(t, site(state)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), validator, "validate", "-p", "process-run-crate", "--requirement-severity", "REQUIRED", dir).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", state, err, out)
		}
	}
}
