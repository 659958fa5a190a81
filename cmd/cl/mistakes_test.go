package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/argparse"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// outcome is the result of a call of cl.
type outcome struct {
	code        int
	out, errors string
	requests    int64
}

// callCounted calls cl with a server that only counts the requests.
func callCounted(t *testing.T, args ...string) outcome {
	t.Helper()
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer s.Close()
	home := t.TempDir()
	var out, errs bytes.Buffer
	err := run(t.Context(), program.Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now,
		Getenv: func(name string) string {
			return map[string]string{"CL_SERVER": s.URL, "CODALAB_USERNAME": "anna", "CODALAB_PASSWORD": "x", "CODALAB_HOME": home}[name]
		},
	})
	if err != nil {
		errs.WriteString(err.Error() + "\n")
	}
	return outcome{program.Code(t.Context(), err), out.String(), errs.String(), requests.Load()}
}

// refused fails unless cl refused a command line in one sentence, with CodaLab's exit code, and sent nothing.
func refused(t *testing.T, args []string, words string) {
	t.Helper()
	got := callCounted(t, args...)
	want := program.ExitUsage // of CodaLab's parser of command lines; what is read after that ends with 1
	if strings.HasPrefix(got.errors, "UsageError: ") || regexp.MustCompile(`error: --\S+ needs a (size|time)`).MatchString(got.errors) {
		want = program.ExitFailure
	}
	switch {
	case got.code != want:
		t.Errorf("cl %q: exit code %d, want %d: %s", args, got.code, want, got.errors)
	case got.requests > 0:
		t.Errorf("cl %q sent %d requests", args, got.requests)
	case got.out != "" || strings.Count(got.errors, "\n") != 1:
		t.Errorf("cl %q: want one line on standard error, got %q and %q", args, got.out, got.errors)
	case !strings.Contains(got.errors, words):
		t.Errorf("cl %q: want %q in %q", args, words, got.errors)
	}
}

// leastArgs are arguments with which each command's line is complete.
func leastArgs() map[string][]string {
	return map[string][]string{
		"upload": {"nosuchfile"}, "make": {"a"}, "run": {"true"}, "edit": {"a"}, "detach": {"a"}, "rm": {"a"}, "du": {}, "doctor": {}, "search": {"a"}, "best": {"/a:b"}, "diff": {"a", "b"}, "plot": {"/a.jsonl:b"}, "ls": {},
		"info": {"a"}, "cat": {"a"}, "wait": {"a"}, "notify": {"ls"}, "top": {}, "download": {"a"}, "rerun": {"a"}, "mimic": {"a"}, "macro": {"m", "a"}, "kill": {"a"},
		"write": {"a/b", "x"}, "netcat": {"a", "80", "x"}, "store": {"ls"}, "secret": {"ls"}, "sweep": {"ls"}, "new": {"a"}, "add": {"text", "x"}, "wadd": {"a", "b"}, "work": {},
		"print": {}, "wedit": {}, "wrm": {"a"}, "wls": {}, "export": {}, "import": {"a"}, "gls": {}, "gnew": {"g"}, "grm": {"g"}, "ginfo": {"g"}, "uadd": {"u", "g"},
		"urm": {"u", "g"}, "perm": {"a", "g", "read"}, "wperm": {"w", "g", "read"}, "chown": {"u", "a"}, "offers": {}, "uinfo": {}, "uedit": {},
		"ufarewell": {"u"}, "uls": {}, "passwd": {}, "sessions": {}, "queues": {}, "usage": {}, "workers": {}, "token": {"ls"}, "status": {}, "alias": {}, "config": {"a/b"}, "login": {}, "logout": {}, "help": {},
	}
}

// TestWrongCommandLineSendsNothing gives each flag of each command every kind of wrong value, and each
// command a flag that it does not have and too few arguments.
func TestWrongCommandLineSendsNothing(t *testing.T) {
	t.Parallel()
	least := leastArgs()
	for _, cmd := range (&cli{}).root().Commands() {
		name := cmd.Name()
		if cmd.Hidden || !cmd.Runnable() || name == "completion" {
			continue
		}
		args, ok := least[name]
		if !ok {
			t.Errorf("cl %s has no line in leastArgs", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := append([]string{name}, args...)
			if len(args) > 0 && cmd.Args != nil && !strings.HasPrefix(cmd.Use[len(name):], " [") {
				refused(t, call[:len(call)-1], "it is used as cl "+name)
			}
			refused(t, append(call, "--nosuchflag"), "there is no option --nosuchflag")
			refused(t, append(call, "-Q"), "there is no option -Q")
			wrongValues(t, cmd, call)
		})
	}
}

// wrongValues gives each flag of a command wrong values.
func wrongValues(t *testing.T, cmd *cobra.Command, call []string) {
	t.Helper()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		flag := "--" + f.Name
		switch kind := f.Value.Type(); kind {
		case "bool":
			refused(t, append(call, flag+"=maybe"), flag+" needs true or false")
			if len(f.Name) > 3 {
				typo := "--" + f.Name[:len(f.Name)-2] + "q" + f.Name[len(f.Name)-1:]
				refused(t, append(call, typo), fmt.Sprintf("there is no option %s: did you mean --", typo))
			}
		case "int", "int64":
			refused(t, append(call, flag, "many"), flag+" needs a whole number, not \"many\"")
			refused(t, append(call, flag, "1.5"), flag+" needs a whole number")
			refused(t, append(call, flag, "99999999999999999999"), flag+" needs a whole number")
			refused(t, append(call, flag), "needs a value")
		case "size", "time":
			refused(t, append(call, flag, "lots"), flag+" needs a "+kind)
			refused(t, append(call, flag, "5x"), flag+" needs a "+kind)
			refused(t, append(call, flag, "-1g"), "needs a")
			refused(t, append(call, flag), "needs a value")
		case "word...":
			if f.Value.(*argparse.Words).Count > 0 {
				refused(t, append(call, flag, "one"), "needs 2 words")
			}
		default:
			refused(t, append(call, flag), "needs a value")
		}
	})
}

// TestMistakesAreRefusedWithTheNearestThing has the mistakes that are not about a single flag.
func TestMistakesAreRefusedWithTheNearestThing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ line, words string }{
		{"uplaod x", "did you mean cl upload?"},
		{"uplaod -n x f", "did you mean cl upload?"},
		{"edit a -d -text", "write --description=-text"},
		{"upload -é", "there is no option -é"},
		{"logout typo", "is no address"},
		{"sessions revoke", "needs the id of a session, or --all"},
		{"sessions revoek x", "did you mean revoke?"},
		{"sessions --all", "--all belongs to cl sessions revoke"},
		{"sessions revoke x --all", "either the ids of sessions or --all"},
		{"mimic a --request-cpus -1", "request_cpus"},
		{"serach x", "did you mean cl search?"},
		{"xyzzy", "cl help lists them"},
		{"help uplod", "did you mean cl upload?"},
		{"help xyzzy", "cl help lists them"},
		{"mount a", "cl cat prints a file"},
		{"open a", "cl info shows a bundle"},
		{"wopen", "cl print shows a worksheet"},
		{"reset --commit", "cl deletes no database"},
		{"events", "audit log"},
		{"bs-health-check -f", "cl-server fsck"},
		{"ls -f sttate", "did you mean state?"},
		{"info -f exitcod a", "did you mean exitcode?"},
		{"search x -f nosuchfield", "cl help fields lists them"},
		{"uinfo -f user_nam", "did you mean user_name?"},
		{"uls -f diskused", "did you mean disk_used?"},
		{"edit a -f request_cpu 1", "did you mean request_cpus?"},
		{"edit a -f request_cpus many", "request_cpus cannot be \"many\""},
		{"edit a -n 1x", "Invalid name \"1x\""},
		{"edit a --freeze --unfreeze", "exclude each other"},
		{"edit a --anonymous --not-anonymous", "exclude each other"},
		{"wedit --freeze --unfreeze", "exclude each other"},
		{"wedit -n x -f file", "need a call of their own"},
		{"wedit -f nosuchfile", "no such file"},
		{"new bad:name", "Invalid name"},
		{"gnew 1x", "Invalid name"},
		{"perm a g wirte", "want none, read or all"},
		{"wperm w g x", "want none, read or all"},
		{"add txt x", "did you mean text?"},
		{"add text -d x", "only applies when adding bundles"},
		{"detach a -n 0", "counts from 1"},
		{"rm a/b", "is a file of a bundle"},
		{"rm a^1-999999", "too long"},
		{"kill http://x:1::a b", "must be on one server"},
		{"run ''", "cannot be empty"},
		{"run true -n bad:name", "Invalid name"},
		{"run k:a k:b true", "key k exists"},
		{"run k:a k/l:b true", "ancestor"},
		{"run true --request-cpus -1", "request_cpus"},
		{"make a b", "Must specify keys"},
		{"make k:a k:b", "Duplicate key"},
		{"mimic a --depth 0", "--depth must be at least 1"},
		{"mimic a -n bad:name", "Invalid name"},
		{"netcat a 99999 x", "is no port"},
		{"netcat a http x", "is no port"},
		{"store mv", "cl store mv is not supported"},
		{"store rm", "needs the uuid"},
		{"store add --url gs://x --storage-type disk -n x", "only supports storage type: gcs"},
		{"store add", "needs --name"},
		{"token mv", "there is no cl token mv"},
		{"token ls x", "there is no cl token ls x"},
		{"token add", "needs --workers"},
		{"token rm", "needs the id"},
		{"uedit", "No fields to update"},
		{"uedit --grant-access --remove-access", "Can't both"},
		{"wait a b --tail", "follows one bundle"},
		{"wait a --tail --json", "cannot be used with --json"},
		{"alias -r", "needs a name"},
		{"alias -r nosuch", "there is no alias"},
		{"alias lab example.org", "is no address"},
		{"config a b -r", "needs no value"},
		{"work ftp://x::", "server address"},
		{"work x --server nonsense", "server address"},
		{"run --req 1 true", "--req may be --request-"},
	} {
		t.Run(test.line, func(t *testing.T) {
			t.Parallel()
			args, err := codalab.SplitWords(test.line)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, args, test.words)
		})
	}
}

// TestSizesAndTimesAreUnderstood reads sizes and times in several spellings, and keeps CodaLab's.
func TestSizesAndTimesAreUnderstood(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"8": "8", "8g": "8g", "8G": "8g", "8GiB": "8g", "8 GB": "8g", "8gb": "8g", "1.5t": "1.5t", "300M": "300m", "300MiB": "300m", "5kb": "5k",
		"": "-", "g": "-", "8gg": "-", "1.5": "-", "-1g": "-", "8gbb": "-", "1e3": "-", "0x8": "-", "99999999999t": "-",
	} {
		if got, err := spellSize(text); err != nil && want != "-" || err == nil && got != want {
			t.Errorf("size %q: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"30": "30", "30s": "30s", "30m": "30m", "3H": "3h", "1.5h": "1.5h", "2d": "2d", "1y": "1y", "1h30m": "90m", "1d2h": "26h", "1h 30m": "90m",
		"1:30:00": "90m", "30:00": "30m", "0:30": "30s", "1-0": "1d", "1-12": "36h", "2-3:30": "3090m", "1-00:00:01": "86401s", "90m30s": "5430s",
		"": "-", "h": "-", "1x": "-", "1:2:3:4": "-", "1-": "-", "-1h": "-", "1h30": "-", ":30": "-", "1:-2": "-", "9999999999y": "-",
	} {
		if got, err := spellDuration(text); err != nil && want != "-" || err == nil && got != want {
			t.Errorf("time %q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestServerThatNobodyHasChosen is about the first call of a new user.
func TestServerThatNobodyHasChosen(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	c := &cli{fallback: "http://127.0.0.1:1", Process: program.Process{
		Args: []string{"ls"}, Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Now: time.Now,
		Getenv: func(name string) string { return map[string]string{"CODALAB_HOME": home}[name] },
	}}
	err := c.run(t.Context())
	const want = "no server is chosen, and none answers at http://127.0.0.1:1: cl work http://SERVER:2900:: chooses one, or set CL_SERVER"
	if err == nil || err.Error() != want || program.Code(t.Context(), err) != program.ExitTransient {
		t.Errorf("got %v (exit code %d), want %q", err, program.Code(t.Context(), err), want)
	}
}
