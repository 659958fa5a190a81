package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestServerSaysWhoMayReadWhatIsNew(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		serving := func(flags ...string) string {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			_, log, ended := serveAt(ctx, flags)
			stop()
			if code := ended(); code != 0 {
				t.Errorf("exit %d: %s", code, log)
			}
			return log.String()
		}
		with := func(more ...string) []string { return append(append([]string{}, flags...), more...) }
		const warning = "everybody may read new worksheets and the bundles on them, as before"
		for _, step := range []struct{ choice, want string }{{"", "none"}, {"public", "public"}, {"", "public"}, {"group", "group"}, {"", "group"}} {
			args := flags
			if step.choice != "" {
				args = with("--default-permission", step.choice)
			}
			if log := serving(args...); !strings.Contains(log, " default_permission="+step.want+" ") || strings.Contains(log, warning) {
				t.Errorf("%+v: %s", step, log)
			}
		}
	})
}

// The data are those that an import into a new data directory leaves.
func TestServerWarnsUntilSomebodyChooses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	in, err := store.OpenImport(t.Context(), dir, "")
	if err == nil {
		err = in.Begin()
	}
	if err == nil {
		err = in.Commit(t.Context(), "test", store.Time{}, func(store.ImportedRows) error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		choice string
		warns  bool
	}{{"", true}, {"", true}, {"--default-permission=public", false}, {"", false}} {
		ctx, stop := context.WithCancel(t.Context())
		_, log, ended := serveAt(ctx, strings.Fields("--data "+dir+" "+step.choice))
		stop()
		if code := ended(); code != 0 || strings.Contains(log.String(), "everybody may read new worksheets") != step.warns || !strings.Contains(log.String(), " default_permission=public ") {
			t.Errorf("%+v: exit %d: %s", step, code, log)
		}
	}
}

func TestAuditFileIsWrittenAndRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "audit.jsonl")
	does(t, "correct horse", "user", "add", "ann", "--data", data)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address, _, ended := serveAt(ctx, []string{"--data", data, "--audit-file", file})
	token := login(t, address, "ann", "correct horse")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/rest/worksheets", strings.NewReader(`{"data":[{"type":"worksheets","attributes":{"name":"paper"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Body.Close() != nil {
		t.Fatalf("%v, %v", answer, err)
	}
	stop()
	ended()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var line struct {
		Msg, User, Request string
		Did                []store.Event
	}
	if err := json.Unmarshal(text, &line); err != nil || line.Msg != "audit" || line.User != "ann" || line.Request != "POST /rest/worksheets" ||
		len(line.Did) != 1 || line.Did[0].Action != "created" || line.Did[0].Name != "paper" {
		t.Errorf("%v: %s", err, text)
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open") // a colleague would put a file of theirs in the place of the audit file
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--audit-file " + file:                            {program.ExitUsage, "everybody can write to " + file + " (mode 0666)"},
		"--audit-file " + open + "/audit.jsonl":           {program.ExitUsage, "everybody can write to " + open + " (mode 0777)"},
		"--audit-file " + dir:                             {program.ExitFailure, "is a directory"},
		"--audit-file " + dir + "/other --audit-size x":   {program.ExitUsage, "--audit-size: invalid size"},
		"--audit-file " + dir + "/other --audit-keep 0":   {program.ExitUsage, "--audit-keep 0: at least one older file is kept"},
		"--default-permission all":                        {program.ExitUsage, `"all" is no default permission: want none, group or public`},
		"--default-permission none --default-permission ": {program.ExitUsage, "flag needs an argument"},
	} {
		_, stderr, code := start(t.Context(), "", append([]string{"run", "--data", data}, strings.Fields(args)...)...)
		if got := code(); got != want.code || !strings.Contains(stderr.String(), want.says) {
			t.Errorf("%s: exit %d, %s", args, got, stderr)
		}
	}
}
