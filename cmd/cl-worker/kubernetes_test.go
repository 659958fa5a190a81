package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// TestKubernetesScripts plays testdata/kubernetes on the real cluster, with the commands of TestScripts. The worker is
// root, on no node; the scripts' directory is one of all nodes. cl-worker-of-user is one of an ordinary user, with the
// directory user as its home. kubectl is the administrator's, in the script's namespace.
func TestKubernetesScripts(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	testenv.Kubernetes(t)
	worker, cl, u := shipped.Path(t), researchers.Path(t), testenv.Researcher(t)
	image := kubetest.Load(t, scriptImage(t))
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join("testdata", "kubernetes"),
		WorkdirRoot: testenv.SharedDir(t),
		Setup: func(env *testscript.Env) error {
			env.Defer(func() { endJobs(env.WorkDir) })
			namespace := kubetest.NewNamespace(t)
			env.Defer(func() { kubetest.RemoveNamespace(namespace) })
			address, stop := startServer(t, filepath.Join(env.WorkDir, "server"))
			env.Defer(stop)
			bin, home := filepath.Join(env.WorkDir, "bin"), filepath.Join(env.WorkDir, "user")
			must(t, errors.Join(os.Mkdir(bin, 0o755), os.Mkdir(home, 0o755), os.Chmod(filepath.Dir(env.WorkDir), 0o755), os.Chmod(env.WorkDir, 0o755)))
			must(t, os.Chown(filepath.Dir(env.WorkDir), 0, 0)) // root runs workers below it
			login := kubetest.Kubectl(t, "config", "view", "--raw", "--flatten")
			config := filepath.Join(home, "kubeconfig")
			must(t, errors.Join(os.WriteFile(config, []byte(login), 0o600), os.Chown(config, u.UID, u.GID), os.Chown(home, u.UID, u.GID)))
			options := fmt.Sprintf("--bundle-runtime kubernetes --kubernetes-namespace %s --kubernetes-cpus 8 --kubernetes-gpus 16 --max-memory 8g", namespace)
			testenv.WriteProgram(t, filepath.Join(bin, "cl-worker"), fmt.Appendf(nil, "#!/bin/sh\nexec %s \"$@\" %s\n", worker, options))
			testenv.WriteProgram(t, filepath.Join(bin, "cl-worker-of-user"), fmt.Appendf(nil,
				"#!/bin/sh\ncd %s && HOME=$PWD KUBECONFIG=%s exec setpriv --reuid=%d --regid=%d --clear-groups %s \"$@\" %s\n", home, config, u.UID, u.GID, worker, options))
			must(t, os.Symlink(cl, filepath.Join(bin, "cl")))
			env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			env.Setenv("KUBECONFIG", os.Getenv("KUBECONFIG"))
			env.Setenv("NAMESPACE", namespace)
			for name, path := range map[string]string{"CLUSTER": ".clusters[0].cluster.server", "CA": ".clusters[0].cluster.certificate-authority", "TOKEN": ".users[0].user.token"} {
				env.Setenv(name, kubetest.Kubectl(t, "config", "view", "--raw", "--minify", "-o", "jsonpath={"+path+"}"))
			}
			env.Setenv("RESEARCHER", strconv.Itoa(u.UID))
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
