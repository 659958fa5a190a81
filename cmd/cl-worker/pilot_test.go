package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/slurmtest"
)

// giving is a Slurm whose jobs belong to a user: the files of a pilot become the user's before it is submitted.
type giving struct {
	slurmbatch.Slurm
	testenv.User
}

func (g giving) Submit(ctx context.Context, r sbatch.Request) (sbatch.JobID, error) {
	dir := filepath.Dir(r.Output)
	for _, path := range []string{dir, filepath.Join(dir, "token")} {
		if err := os.Chown(path, g.UID, g.GID); err != nil {
			return 0, err
		}
	}
	return g.Slurm.Submit(ctx, r)
}

// TestPilotRunsABundleWithItsToken starts cl-worker as it is shipped in a job of slurmbatch. It runs a bundle of ann
// with nothing but its token, which ends with it.
func TestPilotRunsABundleWithItsToken(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	u := testenv.Researcher(t)
	dir := testenv.SharedDir(t)
	address := startTestServer(t, filepath.Join(dir, "server"))
	api, err := client.New(address, client.Options{
		Credentials: func(context.Context) (string, string, error) { return "ann", scriptPassword, nil },
	})
	must(t, err)
	image := imagetest.Start(t).Push(t, "lab/tools:1", scriptImage(t))
	worker := filepath.Join(dir, "cl-worker")
	testenv.WriteProgram(t, worker, fmt.Appendf(nil,
		"#!/bin/sh\nexport HOME=%s\nexec setpriv --reuid=%d --regid=%d --clear-groups %s \"$@\"\n", dir, u.UID, u.GID, shipped.Path(t)))
	must(t, os.Chown(dir, u.UID, u.GID))
	if help, _, _ := call(t, "--help"); !strings.Contains(help, "--token-file") {
		t.Errorf("cl-worker-manager asks the help for --token-file: %s", help)
	}
	b := &slurmbatch.Backend{
		Slurm: giving{slurmtest.NewCluster(t, slurmtest.NewSite()), u}, User: "ann", JobName: "pilot", WorkDir: filepath.Join(dir, "pilots"), Now: time.Now,
		Job: slurmbatch.Job{CPUs: 1, MemoryMB: 2048, Time: time.Hour, Dir: dir},
		Worker: slurmbatch.Worker{
			TakesToken: true,
			Worker: pilot.Worker{
				Executable: worker, Server: address, WorkDir: filepath.Join(dir, "scratch"), IdleSeconds: 600,
				Arguments: []string{"--exit-after-num-runs", "1", "--fetch-private", "127.0.0.1"},
			},
		},
	}
	now := time.Now()
	loop := &pilot.Manager{
		Server: api, Backend: b, Min: 1, Max: 1, MostFailed: -1, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Now: func() time.Time { return now },
	}
	must(t, loop.Pass(t.Context()))
	started, err := b.Logged(t.Context())
	if err != nil || len(started) != 1 {
		t.Fatal(started, err)
	}
	name := started[0].Name
	loop.Min = 0
	must(t, os.Chmod(b.WorkDir, 0o755))
	file := filepath.Join(b.WorkDir, name, "token")
	token, err := os.ReadFile(file)
	must(t, err)
	ran := runAndWait(t, api, image)
	var log []byte
	testenv.Await(t, "the pilot has ended", func() bool {
		now = now.Add(b.Refresh())
		must(t, loop.Pass(t.Context()))
		log, err = os.ReadFile(b.LogFile(name))
		must(t, err)
		_, err = os.Stat(file)
		return os.IsNotExist(err)
	}, &ran.State, &ran.Metadata, &log)
	if ran.State != codalab.StateReady || !strings.Contains(string(log), "Worker started!") {
		t.Errorf("the bundle is %s: %v; the worker says %s", ran.State, ran.Metadata, log)
	}
	for _, secret := range []string{strings.TrimSpace(string(token)), scriptPassword} {
		if strings.Contains(string(log), secret) {
			t.Errorf("%s is in the log %s", secret, log)
		}
	}
	late, err := client.New(address, client.Options{Token: func(context.Context) (string, error) { return strings.TrimSpace(string(token)), nil }})
	must(t, err)
	if _, err := late.User(t.Context()); err == nil {
		t.Error("the token is valid after the pilot's end")
	}
}

// runAndWait creates a run of the client's user, and waits until it has ended.
func runAndWait(t *testing.T, api *client.Client, image string) client.BundleInfo {
	t.Helper()
	uuid := createRun(t, api, image)
	var b client.BundleInfo
	testenv.Await(t, "the run has ended", func() bool {
		var err error
		b, err = api.Bundle(t.Context(), uuid)
		must(t, err)
		return b.State.Final()
	}, &b.State, &b.Metadata)
	return b
}

// createRun creates a run of the client's user, and returns its UUID.
func createRun(t *testing.T, api *client.Client, image string) string {
	t.Helper()
	return createRunOf(t, api, image, "echo ran; env")
}

// createRunOf is createRun with another command.
func createRunOf(t *testing.T, api *client.Client, image, command string) string {
	t.Helper()
	sheet, err := api.FindWorksheet(t.Context(), "", client.HomeWorksheet)
	must(t, err)
	metadata := codalab.Metadata{}
	for _, key := range codalab.MetadataKeys(codalab.TypeRun) {
		if !key.Generated && !key.Optional {
			metadata[key.Key] = key.Default
		}
	}
	metadata["name"], metadata["request_docker_image"] = "r", image
	made, err := api.CreateBundle(t.Context(), client.NewBundle{Worksheet: sheet.UUID, Type: codalab.TypeRun, Command: command, Metadata: metadata})
	must(t, err)
	return made.UUID
}
