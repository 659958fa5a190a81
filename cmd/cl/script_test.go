package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/plan"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cl": main})
}

// The users of the scripts, and the password of all. The root user is "root".
const (
	userName  = "anna"
	colleague = "ben"
	password  = "correct horse"
)

// TestScripts runs testdata/script, each against a server of its own. In addition to cl and testscript's own
// commands they have those of Cmds, and the condition terminal: that this machine can make one.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			address := startServer(t, env)
			env.Setenv("SERVER", address)
			if _, err := os.Stat(filepath.Join(env.WorkDir, "other-server")); err == nil { // the script wants two
				env.Setenv("OTHER", startServer(t, env))
			}
			env.Setenv("CL_SERVER", address)
			env.Setenv("CODALAB_USERNAME", userName)
			env.Setenv("CODALAB_PASSWORD", password)
			env.Setenv("CODALAB_HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("TZ", "UTC")
			// Under the race detector each cl would wait a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond != "terminal" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
			if err != nil {
				return false, nil //nolint:nilerr // that is the answer
			}
			return true, f.Close()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"worker":  workerCommand,
			"queue":   queueCommand,
			"byuuid":  byUUID,
			"byfile":  byFile,
			"private": private,
			"exits":   exits,
			"json":    jsonCommand,
			"as":      as,
			"begun":   begun,
			"staged":  staged,
			"asked":   asked,
		},
	})
}

type workerKey struct{}

// workerCommand drives a worker: worker start, worker platform DRIVER, worker write FILE TEXT, worker use
// SECONDS, worker end EXITCODE. Write, use and end wait until there is a run.
func workerCommand(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: worker start|platform|write|use|end")
	}
	slot, ok := ts.Value(workerKey{}).(*scriptWorker)
	if !ok {
		ts.Fatalf("no server")
	}
	switch args[0] {
	case "start":
		api, err := client.New(ts.Getenv("SERVER"), client.Options{
			Credentials: func(context.Context) (string, string, error) { return userName, password, nil },
		})
		ts.Check(err)
		slot.worker = newWorker(api, ts.MkAbs("runs"))
		done := make(chan struct{})
		ctx, stop := context.WithCancel(slot.ctx)
		go func() { defer close(done); slot.serve(ctx) }()
		ts.Defer(func() { stop(); <-done })
	case "platform":
		slot.change(func() {
			slot.platform = &codalab.Platform{
				Site: "lab", GPUs: []string{"NVIDIA H200"}, GPUDriver: args[1], Software: []codalab.Software{{Name: "Slurm", Version: "24.11.5"}},
			}
		})
	case "write":
		text, err := strconv.Unquote(`"` + args[2] + `"`)
		ts.Check(err)
		ts.Check(slot.write(slot.ctx, args[1], text))
	case "use":
		seconds, err := strconv.ParseFloat(args[1], 64)
		ts.Check(err)
		_, err = slot.held(slot.ctx)
		ts.Check(err)
		slot.change(func() { slot.seconds = seconds })
	case "end":
		code, err := strconv.Atoi(args[1])
		ts.Check(err)
		var failure *string
		if code != 0 {
			message := "Exit code " + args[1]
			failure = &message
		}
		ts.Check(slot.end(slot.ctx, &code, failure))
	}
}

// scriptWorker is a script's worker, once it has one.
type scriptWorker struct {
	*worker
	ctx context.Context
}

// byUUID runs a command with UUID and PREFIX in it replaced by the uuid in a
// file, and by its beginning.
func byUUID(ts *testscript.TestScript, neg bool, args []string) {
	uuid := strings.TrimSpace(ts.ReadFile(args[0]))
	replace := strings.NewReplacer("UUID", uuid, "PREFIX", uuid[:12])
	for i := range args {
		args[i] = replace.Replace(args[i])
	}
	if err := ts.Exec(args[1], args[2:]...); (err != nil) != neg {
		ts.Fatalf("%q: %v", args[1:], err)
	}
}

// byFile runs a command, of testscript or of Cmds, with NAME in it replaced by the text of a file.
func byFile(ts *testscript.TestScript, neg bool, args []string) {
	name := strings.TrimSpace(ts.ReadFile(args[0]))
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "NAME", name)
	}
	if args[1] == "json" {
		jsonCommand(ts, neg, args[2:])
		return
	}
	if err := ts.Exec(args[1], args[2:]...); (err != nil) != neg {
		ts.Fatalf("%q: %v", args[1:], err)
	}
}

// private checks that files are there and only their owner may use them.
func private(ts *testscript.TestScript, _ bool, args []string) {
	for _, pattern := range args {
		files, err := filepath.Glob(ts.MkAbs(pattern))
		ts.Check(err)
		if len(files) == 0 {
			ts.Fatalf("no file %s", pattern)
		}
		for _, f := range files {
			info, err := os.Stat(f)
			ts.Check(err)
			if info.Mode() != fs.FileMode(0o600) {
				ts.Fatalf("%s has mode %v", f, info.Mode())
			}
		}
	}
}

// exits runs a command that must end with an exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%q: exit code %d, want %s", args[1:], code, args[0])
	}
}

// jsonCommand runs a command with --json, which must print one JSON value and nothing else. With an even
// number of further words, they are keys (a.0.b) and their values: json cl ls -- 0.state ready.
func jsonCommand(ts *testscript.TestScript, _ bool, args []string) {
	words, wants := args, []string(nil)
	if i := slices.Index(args, "@"); i >= 0 {
		words, wants = args[:i], args[i+1:]
	}
	ts.Check(ts.Exec(words[0], append(slices.Clone(words[1:]), "--json")...))
	out := ts.ReadFile("stdout")
	var value any
	if err := json.Unmarshal([]byte(out), &value); err != nil {
		ts.Fatalf("%q prints no JSON: %v: %s", words, err, out)
	}
	if len(wants)%2 != 0 {
		ts.Fatalf("usage: json COMMAND... @ KEY VALUE KEY VALUE...")
	}
	for pair := range slices.Chunk(wants, 2) {
		if got := fmt.Sprint(lookUp(value, pair[0])); got != pair[1] {
			ts.Fatalf("%q: %s is %s, want %s: %s", words, pair[0], got, pair[1], out)
		}
	}
}

// lookUp returns the value at a path of keys and indexes in decoded JSON; nil if there is none. The key
// "len" is the length of a list.
func lookUp(value any, path string) any {
	for _, key := range strings.Split(path, ".") {
		switch at := value.(type) {
		case map[string]any:
			value = at[key]
		case []any:
			i, err := strconv.Atoi(key)
			switch {
			case key == "len":
				value = len(at)
			case err != nil || i >= len(at):
				return nil
			default:
				value = at[i]
			}
		default:
			return nil
		}
	}
	return value
}

// as runs a command as another user, with a home of that user's own: as ben cl ls.
func as(ts *testscript.TestScript, neg bool, args []string) {
	defer ts.Setenv("CODALAB_USERNAME", ts.Getenv("CODALAB_USERNAME"))
	defer ts.Setenv("CODALAB_HOME", ts.Getenv("CODALAB_HOME"))
	ts.Setenv("CODALAB_USERNAME", args[0])
	ts.Setenv("CODALAB_HOME", ts.MkAbs("home-"+args[0]))
	if args[1] == "json" {
		jsonCommand(ts, neg, args[2:])
		return
	}
	if err := ts.Exec(args[1], args[2:]...); (err != nil) != neg {
		ts.Fatalf("%q: %v", args, err)
	}
}

// asked waits until somebody has asked the server for the bundle whose uuid is in a file.
func asked(ts *testscript.TestScript, _ bool, args []string) {
	paths, ok := ts.Value(askedKey{}).(*sync.Map)
	path := "/rest/bundles/" + strings.TrimSpace(ts.ReadFile(args[0]))
	if !ok || !testenv.Poll(func() bool { _, there := paths.Load(path); return there }) {
		ts.Fatalf("nobody asks for %s", path)
	}
}

// staged waits until the server has staged a run that no worker takes, and has told why, which it does in its own time.
func staged(ts *testscript.TestScript, _ bool, args []string) {
	if !testenv.Poll(func() bool {
		ts.Check(ts.Exec("cl", "info", "-f", "state,staged_status", args[0]))
		state, reason, _ := strings.Cut(ts.ReadFile("stdout"), "\t")
		return state == "staged" && reason != "<none>\n" && reason != plan.StagedStatus+"\n"
	}) {
		ts.Fatalf("%s is not staged", args[0])
	}
}

// begun creates a bundle on the other server, as an interrupted copy leaves it: begun FILE [NAME]. The file has its uuid.
func begun(ts *testscript.TestScript, _ bool, args []string) {
	api, err := client.New(ts.Getenv("OTHER"), client.Options{
		Credentials: func(context.Context) (string, string, error) { return userName, password, nil },
	})
	ts.Check(err)
	home, err := api.FindWorksheet(context.Background(), "", client.HomeWorksheet)
	ts.Check(err)
	metadata := codalab.Metadata{}
	for _, k := range codalab.MetadataKeys(codalab.TypeDataset) {
		if !k.Generated {
			metadata[k.Key] = k.Default
		}
	}
	metadata["name"] = "begun"
	if len(args) > 1 {
		metadata["name"] = args[1]
	}
	_, err = api.CreateBundle(context.Background(), client.NewBundle{
		UUID: strings.TrimSpace(ts.ReadFile(args[0])), Worksheet: home.UUID, Type: codalab.TypeDataset, Metadata: metadata,
		WaitForUpload: true, Detached: true,
	})
	ts.Check(err)
}
