package main

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// runManager runs a worker manager until end is called, which returns the manager's log. title names it in the test's log.
func runManager(t *testing.T, manager *exec.Cmd, title string) (end func() string) {
	t.Helper()
	var log bytes.Buffer
	manager.Stdout, manager.Stderr = &log, &log
	must(t, manager.Start())
	end = sync.OnceValue(func() string {
		_ = manager.Process.Signal(os.Interrupt)
		_ = manager.Wait()
		t.Logf("the log of %s\n%s", title, log.String())
		return log.String()
	})
	t.Cleanup(func() { end() })
	return end
}

// awaitBundle waits until a bundle's state holds.
func awaitBundle(t *testing.T, api *client.Client, uuid, what string, holds func(b client.BundleInfo) bool) client.BundleInfo {
	t.Helper()
	var b client.BundleInfo
	testenv.Await(t, what, func() bool {
		var err error
		b, err = api.Bundle(t.Context(), uuid)
		must(t, err)
		return holds(b)
	}, &b.State, &b.Metadata)
	return b
}
