// Command caller runs a container from inside a pod, as a worker there does: the image and the command line are its
// arguments, and the directory /work is on a volume. It prints the end. With a third argument it ends, as in a crash, when the
// command has begun.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/container/pods"
	"github.com/cl-slurm/cl-slurm/apptainer/container/runner"
	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
)

func main() {
	if code, ran := runner.Main(os.Args); ran {
		os.Exit(code)
	}
	if err := call(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func call() error {
	ctx := context.Background()
	settings, err := pods.Find(ctx, kubeclient.Access{}, os.Getenv("POD_NAME"), "/work")
	if err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	helper := filepath.Join("/work", "helper")
	if err := os.WriteFile(helper, self, 0o755); err != nil {
		return err
	}
	// A busy machine may keep a beat for some seconds.
	r := pods.Runtime{Settings: settings, Helper: helper, Silence: 20 * time.Second}
	if err := r.Try(ctx, "/work"); err != nil {
		return err
	}
	out, err := os.OpenFile("/work/out", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	c := container.Container{PinnedReference: os.Args[1], ShellCommand: os.Args[2], PrivateDir: "/work", Stdout: out, Stderr: out}
	if len(os.Args) > 3 {
		c.OnStart = func(container.Running) { os.Exit(3) }
	}
	exit, err := r.Run(ctx, c)
	if err != nil {
		return err
	}
	fmt.Printf("exit %d\n", exit.Code)
	return nil
}
