package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot/awsbatch/awstest"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	time.Local = time.UTC // what is printed is in the reader's zone
	testscript.Main(m, map[string]func(){"cl-worker-manager": main, "cl-worker": standIn, "stock-worker": standIn})
}

// runHere runs the program in this process.
func runHere(t *testing.T, env map[string]string, args ...string) (string, error) {
	t.Helper()
	return runWith(t.Context(), env, args...)
}

func runWith(ctx context.Context, env map[string]string, args ...string) (string, error) {
	var out bytes.Buffer
	err := run(ctx, program.Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(name string) string { return env[name] }, Now: time.Now,
	})
	return out.String(), err
}

// TestHelpIsAsWritten compares the output of --help with testdata/help.
func TestHelpIsAsWritten(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"", "slurm-batch", "aws-batch", "azure-batch", "kubernetes", "status", "logs", "kill"} {
		name := strings.TrimSuffix("cl-worker-manager-"+verb, "-")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := runHere(t, nil, append(strings.Fields(verb), "--help")...)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "help", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-update writes it): %s", file, diff)
			}
		})
	}
}

// startServer starts a CodaLab server on which ann has the password secret.
func startServer(t *testing.T, dir string) *httptest.Server {
	t.Helper()
	return startServerAt(t, dir, "127.0.0.1:0")
}

// startServerAt starts a server at an address of this host.
func startServerAt(t *testing.T, dir, address string) *httptest.Server {
	t.Helper()
	data, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	cost := server.PasswordCost{Passes: 1, KiB: 8}
	for _, name := range []string{"ann", rootUser} {
		user := store.User{
			ID: codalab.NewUUID(), Name: name, Password: server.HashPassword("secret", cost), TimeQuota: 1 << 40, DiskQuota: 1 << 40, ParallelRunQuota: 100,
		}
		if err := data.AddUser(t.Context(), user); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	s := server.New(server.Config{Store: data, Now: time.Now, PasswordCost: cost})
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(s.Handler())
	_ = web.Listener.Close() // it has one of its own
	web.Listener = listener
	web.Start()
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		stop()
		if err := errors.Join(<-done, data.Close()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return web
}

// connectAnn returns a client of ann.
func connectAnn(t *testing.T, address string) *client.Client {
	t.Helper()
	api, err := (&login{Login: account.Login{User: "ann", Password: "secret"}}).connect(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// stage creates n runs of a client's user, and waits until they are staged. Their names are their commands.
func stage(t *testing.T, api *client.Client, n int, change codalab.Metadata) []string {
	t.Helper()
	sheet, err := api.FindWorksheet(t.Context(), "", client.HomeWorksheet)
	if err != nil {
		t.Fatal(err)
	}
	var uuids []string
	for range n {
		metadata := codalab.Metadata{}
		for _, key := range codalab.MetadataKeys(codalab.TypeRun) {
			if !key.Generated && !key.Optional {
				metadata[key.Key] = key.Default
			}
		}
		metadata["name"] = "train"
		for key, value := range change {
			metadata[key] = value
		}
		b, err := api.CreateBundle(t.Context(), client.NewBundle{Worksheet: sheet.UUID, Type: codalab.TypeRun, Command: metadata.String("name"), Metadata: metadata})
		if err != nil {
			t.Fatal(err)
		}
		uuids = append(uuids, b.UUID)
		awaitState(t, api, b.UUID, codalab.StateStaged)
	}
	return uuids
}

// awaitState waits until a bundle is in a state.
func awaitState(t *testing.T, api *client.Client, uuid string, state codalab.State) (b client.BundleInfo) {
	t.Helper()
	testenv.Await(t, "bundle "+uuid+" is "+string(state), func() bool {
		var err error
		b, err = api.Bundle(t.Context(), uuid)
		testenv.Must(t, err)
		return b.State == state
	}, &b.State, &b.Metadata)
	return b
}

// TestScripts runs testdata/script. $SERVER is a server with two staged bundles of ann: one that asks for
// nothing in particular ($BUNDLE), and one for eight CPUs. Slurm's commands are scripts in $WORK/slurm, which come
// first in PATH.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"), ContinueOnError: true, RequireUniqueNames: true, UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			web := startServer(t, filepath.Join(env.WorkDir, "..", filepath.Base(env.WorkDir)+"-server"))
			api := connectAnn(t, web.URL)
			env.Setenv("SERVER", web.URL)
			env.Setenv("BUNDLE", stage(t, api, 1, nil)[0])
			stage(t, api, 1, codalab.Metadata{"request_cpus": int64(8)})
			if filepath.Base(env.WorkDir) == "script-kill" {
				env.Setenv("SLEEPER", stage(t, api, 1, codalab.Metadata{"name": "sleep"})[0])
			}
			if filepath.Base(env.WorkDir) == "script-aws-batch" {
				cloud := awstest.New(t, time.Now)
				cloud.Begun = func(*awstest.Job) []string { return []string{"the worker has begun"} }
				cloud.Done = "the worker has ended"
				env.Setenv("AWS", cloud.URL)
				env.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
				env.Setenv("AWS_SECRET_ACCESS_KEY", "example")
			}
			bin := filepath.Join(env.WorkDir, "slurm")
			writeSlurmCommands(t, bin)
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("SLURM_CONF", "")
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}

// writeSlurmCommands writes scripts with the names of Slurm's commands. sbatch appends its arguments and its script
// to the files args and script, and its job to the file jobs, which squeue lists. The scripts print package sbatch's
// recorded outputs of the real commands, and implement no rules. squeue and sinfo fail if there is a file down. If
// there is a file run, the scripts of jobs run, and scancel ends all.
func writeSlurmCommands(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const down = `[ ! -e "$dir/down" ] || { echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1; }` + "\n"
	for name, script := range map[string]string{
		"squeue": down + `echo squeue >>"$dir/calls"
for a; do case $a in --format=*) separator=${a#--format=} separator=${separator%%%*} ;; esac; done
[ ! -e "$dir/jobs" ] || exec sed "s/|/$separator/g" "$dir/jobs"`,
		"sbatch": `echo sbatch >>"$dir/calls"
[ ! -e "$dir/refuse" ] || { echo 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified' >&2; exit 1; }
for a; do case $a in --job-name=*) name=${a#*=} ;; --output=*) output=${a#*=} ;; esac; done
echo "$@" >>"$dir/args"; env >>"$dir/args"; cat >"$dir/script$name"; cat "$dir/script$name" >>"$dir/script"
echo "this is what $name prints" >"$output"
if [ -e "$dir/run" ]; then
	setsid sh "$dir/script$name" >>"$output" 2>&1 </dev/null &
	echo $! >>"$dir/pids"
fi
id=$(($(cat "$dir/jobs" 2>/dev/null | wc -l) + 100))
echo "|$id|RUNNING|n1|$(date +%s)|$name|None|$(date +%s)|1:00:00|" >>"$dir/jobs"
echo '*** maintenance on Friday ***'; echo $id; echo 'Thank you.'`,
		"scancel": `echo "scancel $*" >>"$dir/calls"; rm -f "$dir/jobs"; [ ! -e "$dir/pids" ] || kill $(cat "$dir/pids")`,
		"sinfo": down + `cat <<'END'
cpu|cpu*|up|7-00:00:00|1:00:00|0/2/0/2|UNLIMITED|64|256000|(null)
gpu|gpu|up|2-00:00:00|1:00:00|0/2/0/2|UNLIMITED|64|256000|gpu:a100:4
END`,
	} {
		testenv.WriteProgram(t, filepath.Join(dir, name), []byte("#!/bin/sh\ndir=${0%/*}\n"+script+"\n"))
	}
}
