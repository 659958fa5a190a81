package config

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parseFollowing returns a configuration in which some texts are replaced.
func parseFollowing(t *testing.T, replace ...string) Config {
	t.Helper()
	text := `server = "https://worksheets.example.org"
user = "ann"
password_file = "/home/ann/password"
shared = "/shared/ann"
max_attempts = 3
[slurm]
bin = "/opt/slurm/bin"
[staging]
bandwidth = "200m"
[queue.cpu]
max_time = "1d"
[queue.old]
`
	c, err := Parse(strings.NewReader(strings.NewReplacer(replace...).Replace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReloadSaysWhatChangesAndWhatNeedsANewStart(t *testing.T) {
	t.Parallel()
	running := parseFollowing(t)
	fresh := parseFollowing(t, `"1d"`, "\"2d\"\npartition = \"long\"", "[queue.old]", "[queue.new]", `"200m"`, "\"1g\"\ndownloads = 4\nmax_files = 5\n[cache]\nsize = \"2g\"\nlow = 70",
		"/opt/slurm/bin", "/usr/bin", "max_attempts = 3", "max_attempts = 5\nlow_water = \"10%\"")
	merged, changed, left, err := running.Follow(fresh)
	if err != nil {
		t.Fatal(err)
	}
	var lines, need []string
	for _, c := range changed {
		lines = append(lines, c.String())
	}
	for _, c := range left {
		need = append(need, c.Key)
	}
	if diff := cmp.Diff([]string{
		"queue.new is new: a queue", "queue.old is gone", "cache.size: none → 2g", "low_water: 5%, at most 50g → 10%", "max_attempts: 3 → 5",
		`queue.cpu.max_time: 1d → 2d`, `queue.cpu.partition: "" → "long"`, "staging.bandwidth: 200m → 1g", "staging.downloads: 8 → 4", "staging.max_files: 10000000 → 5",
	}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"cache.low", "slurm.bin"}, need); diff != "" {
		t.Errorf("a new start (-want +got):\n%s", diff)
	}
	if merged.Slurm.Bin != "/opt/slurm/bin" || merged.MaxAttempts != 5 || merged.Queue["cpu"].Partition != "long" || merged.Queue["new"] == nil || merged.Queue["old"] != nil {
		t.Errorf("merged: %+v", merged)
	}
	if running.MaxAttempts != 3 || running.Queue["cpu"].Partition != "" || len(running.Queue) != 2 {
		t.Errorf("the running configuration has changed: %+v", running)
	}
	if _, changed, left, err := running.Follow(parseFollowing(t)); len(changed)+len(left) > 0 || err != nil {
		t.Errorf("the same file: %v, %v, %v", changed, left, err)
	}
}

func TestReloadFollowsTheTableOfOwners(t *testing.T) {
	t.Parallel()
	const ann, lab = "[[map]]\nusers = [\"ann\"]\naccount = \"nlp\"\nnice = 5\n[queue.old]", "[[map]]\ngroups = [\"lab\"]\nqueues = [\"cpu\"]\nrefuse = \"Ask Bob.\"\n"
	merged, changed, left, err := parseFollowing(t, "[queue.old]", ann).Follow(parseFollowing(t, "[queue.old]", lab+ann))
	if err != nil || len(left) > 0 || len(changed) != 1 || len(merged.Mappings()) != 2 {
		t.Fatalf("%v, %v, %v; %+v", err, left, changed, merged.Map)
	}
	if got, want := changed[0].String(), "map: ann: account nlp, nice 5 → @lab in cpu: refused; ann: account nlp, nice 5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, changed, _, err := parseFollowing(t, "[queue.old]", ann).Follow(parseFollowing(t)); err != nil || len(changed) != 1 || changed[0].String() != "map: ann: account nlp, nice 5 → none" {
		t.Errorf("%v, %v", changed, err)
	}
}

// A table of the old file and one of the new file may contradict each other where each file does not.
func TestReloadRefusesAMixtureThatContradictsItself(t *testing.T) {
	t.Parallel()
	running := parseFollowing(t, "[staging]", "[image]\nqueue = \"old\"\n[staging]")
	if _, _, _, err := running.Follow(parseFollowing(t, "[queue.old]", "")); err == nil || !strings.Contains(err.Error(), "image.queue") {
		t.Errorf("error %v", err)
	}
	foreign := "arm64"
	if Architecture("").Canonical() == "arm64" {
		foreign = "amd64"
	}
	workers := "[workers]\n" + foreign + " = \"/opt/cl-worker\"\n[queue.old]"
	merged, _, left, err := parseFollowing(t, "[queue.old]", workers).Follow(parseFollowing(t, "[queue.old]", workers+"\n[queue.arm]\narchitecture = \""+foreign+"\""))
	if err != nil || merged.Queue["arm"] != nil || len(left) != 1 || left[0].Key != "queue.arm.architecture" {
		t.Errorf("nodes whose cl-worker is not installed: %v, %v", left, err)
	}
}

// Each key of the reference is found in a configuration, so that a change of it is noticed.
func TestReloadNoticesAChangeOfEveryKey(t *testing.T) {
	t.Parallel()
	whole, err := os.Open("testdata/whole.good.toml")
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	c, err := Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, l := range leavesOf(&c) {
		found[l.name] = true
	}
	tables := []string{"link.", "image.registry.", "workers.", "cache.owner_sizes.", "map.", "queue.NAME.environment."}
	for _, k := range Keys() {
		inTable := false
		for _, t := range tables {
			inTable = inTable || strings.HasPrefix(k.Name, t)
		}
		if !found[k.Name] && !inTable {
			t.Errorf("a change of %s is not noticed", k.Name)
		}
	}
	for _, key := range []string{"link.root", "cache.owner_sizes.ID", "image.registry", "workers", "map", "queue.NAME.environment"} {
		if !found[key] {
			t.Errorf("a change of %s is not noticed", key)
		}
	}
	for name := range found {
		if reflect.ValueOf(name).IsZero() {
			t.Error("a field has no key")
		}
	}
}
