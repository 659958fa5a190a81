package pages

import (
	"net/url"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestFormOfANewRunIsRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		typed url.Values
		want  string
	}{
		"nothing":       {url.Values{}, "command cpus gpus"},
		"good":          {url.Values{"command": {"date"}, "cpus": {"2"}, "gpus": {"0"}, "memory": {"8g"}, "time": {"3h"}, "name": {"a-b"}, "dependencies": {"d:0x1/x\r\n\r\n:e"}}, ""},
		"numbers":       {url.Values{"command": {"date"}, "cpus": {"0"}, "gpus": {"-1"}}, "cpus gpus"},
		"texts":         {url.Values{"command": {"date"}, "cpus": {"two"}, "gpus": {"0.5"}}, "cpus gpus"},
		"units":         {url.Values{"command": {"date"}, "cpus": {"1"}, "gpus": {"0"}, "memory": {"8 cakes"}, "time": {"0"}}, "memory time"},
		"a name":        {url.Values{"command": {"date"}, "cpus": {"1"}, "gpus": {"0"}, "name": {"1 a"}}, "name"},
		"keys":          {url.Values{"command": {"date"}, "cpus": {"1"}, "gpus": {"0"}, "dependencies": {"a:x\na/b:y"}}, "dependencies"},
		"zero bytes":    {url.Values{"command": {"a\x00"}, "cpus": {"1"}, "gpus": {"0"}}, "command"},
		"out of a tree": {url.Values{"command": {"date"}, "cpus": {"1"}, "gpus": {"0"}, "dependencies": {"a:x/../../y"}}, "dependencies"},
	} {
		f := readRunForm(test.typed)
		f.given()
		f.inputs()
		got := ""
		for _, field := range []string{"command", "dependencies", "name", "cpus", "gpus", "memory", "time"} {
			if f.Problems[field] != "" {
				got += " " + field
			}
		}
		if want := test.want; got != "" && got[1:] != want || got == "" && want != "" || !codalab.IsUUID(f.UUID) {
			t.Errorf("%s:%s instead of %s: %v", name, got, want, f.Problems)
		}
	}
}

func TestLineOfANewRunHasWhatDiffers(t *testing.T) {
	t.Parallel()
	command := "date +%Y"
	old := &codalab.Bundle{UUID: "0x00000000000000000000000000000001", Type: codalab.TypeRun, Command: &command, Metadata: codalab.Metadata{
		"name": "a", "request_cpus": 2, "request_gpus": 0, "request_memory": "4g", "request_time": "", "request_docker_image": "python", "docker_image": "python@sha256:1",
	}, Dependencies: []codalab.Dependency{{ChildPath: "d", ParentUUID: "0x00000000000000000000000000000002", ParentPath: "x"}}}
	for name, test := range map[string]struct {
		old    *codalab.Bundle
		change func(*runForm)
		want   string
	}{
		"as it was":   {old, func(*runForm) {}, "cl run --like " + old.UUID},
		"more GPUs":   {old, func(f *runForm) { f.GPUs, f.Queue = "1", "gpu" }, "cl run --like " + old.UUID + " --request-queue gpu --request-gpus 1"},
		"a command":   {old, func(f *runForm) { f.Command = "date +%m" }, "cl run --like " + old.UUID + " 'date +%%m'"},
		"an input":    {old, func(f *runForm) { f.Dependencies = "d:other" }, "cl run --like " + old.UUID + " d:other"},
		"a new one":   {nil, func(f *runForm) { f.Command, f.Dependencies, f.Memory = "cat d; ls", "d:data", "8g" }, "cl run --request-memory 8g d:data 'cat d; ls'"},
		"hostile one": {nil, func(f *runForm) { f.Command, f.Image = "$(a)", "'; rm" }, `cl run --request-docker-image ''"'"'; rm' '$(a)'`},
	} {
		f := newForm(test.old)
		test.change(&f)
		f.Problems = map[string]string{}
		if got := f.line(test.old, f.inputs()); got != test.want {
			t.Errorf("%s: %s instead of %s", name, got, test.want)
		}
	}
	if f := newForm(old); f.Image != "python@sha256:1" || f.Dependencies != "d:0x00000000000000000000000000000002/x" || f.CPUs != "2" {
		t.Errorf("%+v", f)
	}
}
