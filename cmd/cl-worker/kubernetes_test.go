package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/apptainer/container/pods/podstest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// TestKubernetesScripts plays testdata/kubernetes on the real cluster, with the commands of TestScripts. The worker is
// root, on no node; the scripts' directory is one of all nodes. kubectl is the administrator's, in the script's namespace.
func TestKubernetesScripts(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	testenv.Kubernetes(t)
	worker, cl := shipped.Path(t), researchers.Path(t)
	image := podstest.Load(t, scriptImage(t))
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join("testdata", "kubernetes"),
		WorkdirRoot: testenv.SharedDir(t),
		Setup: func(env *testscript.Env) error {
			env.Defer(func() { endJobs(env.WorkDir) })
			namespace := podstest.NewNamespace(t)
			env.Defer(func() { podstest.RemoveNamespace(namespace) })
			address, stop := startServer(t, filepath.Join(env.WorkDir, "server"))
			env.Defer(stop)
			bin := filepath.Join(env.WorkDir, "bin")
			must(t, os.Mkdir(bin, 0o755))
			testenv.WriteProgram(t, filepath.Join(bin, "cl-worker"), fmt.Appendf(nil,
				"#!/bin/sh\nexec %s \"$@\" --bundle-runtime kubernetes --kubernetes-namespace %s --kubernetes-cpus 8 --kubernetes-gpus 16 --max-memory 8g\n", worker, namespace))
			must(t, os.Symlink(cl, filepath.Join(bin, "cl")))
			env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			env.Setenv("KUBECONFIG", os.Getenv("KUBECONFIG"))
			env.Setenv("NAMESPACE", namespace)
			env.Setenv("IMAGE", image)
			env.Setenv("SERVER", address)
			env.Setenv("CL_SERVER", address)
			env.Setenv("CODALAB_USERNAME", "ann")
			env.Setenv("CODALAB_PASSWORD", scriptPassword)
			env.Setenv("CODALAB_HOME", filepath.Join(env.WorkDir, "home-ann"))
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"soon": soon, "exits": exits},
	})
}
