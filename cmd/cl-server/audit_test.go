package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/server/store"
)

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
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--audit-file " + file:                     {program.ExitFailure, "others may write it (mode 0666): chmod go-w " + file},
		"--audit-file " + dir:                      {program.ExitFailure, "is a directory"},
		"--audit-file " + file + " --audit-size x": {program.ExitUsage, "--audit-size: invalid size"},
		"--audit-file " + file + " --audit-keep 0": {program.ExitUsage, "--audit-keep 0: at least one older file is kept"},
	} {
		_, stderr, code := start(t.Context(), "", append([]string{"run", "--data", data}, strings.Fields(args)...)...)
		if got := code(); got != want.code || !strings.Contains(stderr.String(), want.says) {
			t.Errorf("%s: exit %d, %s", args, got, stderr)
		}
	}
}
