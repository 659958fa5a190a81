package main

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

func TestRangesAreWrittenOut(t *testing.T) {
	t.Parallel()
	got, err := expandSpecs([]string{"foo", "a^1-3", "^2-1", "b^4"})
	want := []string{"foo", "a^1", "a^2", "a^3", "^2", "^1", "b^4"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, spec := range []string{"^1-99999999", "^1-99999999999999999999"} {
		if _, err := expandSpecs([]string{spec}); err == nil {
			t.Errorf("%s was written out", spec)
		}
	}
}

func TestArgumentsOfCodaLabsFormAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{"ls", "-u"}, []string{"ls", "--uuid-only", "--"}},
		{[]string{"--server", "a", "ls", "-u"}, []string{"ls", "--server=a", "--uuid-only", "--"}},
		{[]string{"run", "x", "--tags", "a", "b", "-n", "name"}, []string{"run", `--tags=["a","b"]`, "--name=name", "--", "x"}},
		{[]string{"run", "x", "--tags"}, []string{"run", "--tags=[]", "--", "x"}},
		{[]string{"run", "x", "--tags=a", "b"}, []string{"run", `--tags=["a"]`, "--", "x", "b"}},
		{[]string{"run", "-Wn=a", "--request-q", "gpu", "x"}, []string{"run", "--wait", "--name=a", "--request-queue=gpu", "--", "x"}},
		{[]string{"run", "--request-priority", "-5", "-x y"}, []string{"run", "--request-priority=-5", "--", "-x y"}},
		{[]string{"run", "--request-network=false", "x"}, []string{"run", "--request-network=false", "--", "x"}},
		{[]string{"up", "d", "-x", "*.o", "-p"}, []string{"up", `--exclude-patterns=["*.o"]`, "--pack", "--", "d"}},
		{[]string{"run", ":a", "---", "echo", "it's", "a b", "-n"}, []string{"run", "--", ":a", `echo 'it'"'"'s' 'a b' -n`}},
		{[]string{"run", "--tags", "a", "--", "-x"}, []string{"run", `--tags=["a"]`, "--", "-x"}},
	} {
		got, err := normalizeArgs((&cli{}).root(), test.in)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%q: %v%s", test.in, err, diff)
		}
	}
}

func TestWrongOptionsAreSentences(t *testing.T) {
	t.Parallel()
	for want, in := range map[string][]string{
		"cl run: error: there is no option --requst-gpus: did you mean --request-gpus?":                {"run", "--requst-gpus", "1", "x"},
		"cl ls: error: there is no option -z; cl ls --help lists them":                                 {"ls", "-z"},
		"cl run: error: -n/--name needs a value; for one that begins with a dash write --name=--tail":  {"run", "-n", "--tail", "x"},
		"cl run: error: --request-d may be --request-disk or --request-docker-image: write more of it": {"run", "--request-d", "1g", "x"},
	} {
		if got, err := normalizeArgs((&cli{}).root(), in); err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v, want %s", in, got, err, want)
		}
	}
}

func TestNearestWordIsFound(t *testing.T) {
	t.Parallel()
	list := []string{"upload", "download", "detach", "rm", "ls"}
	for typed, want := range map[string]string{"uplaod": "upload", "dowload": "download", "dettach": "detach", "frobnicate": "", "lss": "ls"} {
		if got := argparse.Nearest(typed, list); got != want {
			t.Errorf("%s: got %q, want %q", typed, got, want)
		}
	}
}

func TestDefaultNamesAreCodaLabs(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"cat x":          "run-cat",
		"./a b":          "run-.-a",
		"python3 -c 'x'": "run-python3",
		"/opt/bin/a x":   "run-opt-bin-a",
	} {
		if got := defaultName(codalab.TypeRun, from); got != want {
			t.Errorf("run %q: got %q, want %q", from, got, want)
		}
	}
	for from, want := range map[string]string{
		"a.txt":                               "a.txt",
		"a b.txt-d":                           "a-b.txt-d",
		"1.txt":                               "_1.txt",
		"x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-y": "x-x-x-x-x-x-x-x..x-x-x-x-x-x-x-y",
	} {
		if got := defaultName(codalab.TypeDataset, from); got != want {
			t.Errorf("%q: got %q, want %q", from, got, want)
		}
	}
}

func TestValuesArePrintedAsCodaLabPrintsThem(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		key   string
		value any
		want  string
	}{
		{"data_size", 6.0, "6 bytes"},
		{"data_size", 12296.0, "12.0k"},
		{"time", 4.00864, "4.0s"},
		{"time_running", 75.4, "1m15s"},
		{"cpu_usage", 0.0, "0.0"},
		{"cpu_usage", 0.25, "0.25"},
		{"request_cpus", 1.0, "1"},
		{"request_memory", "2g", "2g"},
		{"request_network", true, "True"},
		{"exitcode", nil, "None"},
	} {
		if got := codalab.FormatMetadata(test.key, test.value, time.Local); got != test.want {
			t.Errorf("%s %v: got %q, want %q", test.key, test.value, got, test.want)
		}
	}
}

func TestRefusalsArePrintedAsCodaLabPrintsThem(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want string
		code int
	}{
		{&codalab.Error{Status: 404, Message: "no"}, "NotFoundError: no", program.ExitFailure},
		{&codalab.Error{Status: 404, Message: "not now", Later: true}, "not now", program.ExitTransient},
		{&codalab.Error{Status: 403, Message: "no"}, "no", program.ExitFailure},
		{&codalab.Error{Status: 401, Message: "no"}, "AuthorizationError: no", program.ExitFailure},
		{&codalab.Error{Status: 400, Message: "no"}, "UsageError: no", program.ExitFailure},
		{&codalab.Error{Status: 409, Message: "no"}, "UsageError: no", program.ExitFailure},
		{&codalab.Error{Status: 401, Message: "no", Err: client.ErrCredentials}, "no", program.ExitFailure},
		{&codalab.Error{Status: 500, Message: "no"}, "ServerError: no", program.ExitTransient},
		{&codalab.Error{Message: "cannot reach it"}, "cannot reach it", program.ExitTransient},
		{errors.New("other"), "other", program.ExitFailure},
	} {
		err := explain(test.err)
		if err.Error() != test.want || program.Code(t.Context(), err) != test.code {
			t.Errorf("%v: got %q and code %d", test.err, err, program.Code(t.Context(), err))
		}
	}
}

func TestServerOfOneCommandIsUsedFromTheHomeWorksheet(t *testing.T) {
	t.Parallel()
	here := session{Address: "http://here:2900", Worksheet: someUUID}
	for named, want := range map[string]session{
		"": here, "http://here:2900/": here, "http://there:2900": {Address: "http://there:2900"},
	} {
		c := &cli{state: &stateFile{Sessions: map[string]session{"default": here}}, server: named}
		c.Getenv = func(name string) string { return map[string]string{"CODALAB_HOME": t.TempDir()}[name] }
		if got, err := c.session(); err != nil || got != want {
			t.Errorf("--server %q: %+v, %v", named, got, err)
		}
	}
}
