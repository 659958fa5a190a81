package main

import (
	"context"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// farSlurm is the Slurm of another process, for a bridge that is measured separately. The bridge runs
// squeue and reads its text, as it does at a site. Submissions go over a socket: starting a program for
// each would take longer than everything else.
type farSlurm struct {
	*sbatch.Client

	desk *rpc.Client
}

// desk serves a Slurm to a farSlurm.
type desk struct{ slurm *coreSlurm }

func slurmSocket(dir string) string { return filepath.Join(dir, "slurm") }

// serveSlurm serves a Slurm to the process that has its files in dir.
func serveSlurm(ctx context.Context, dir string, s *coreSlurm) (stop func()) {
	l := must((&net.ListenConfig{}).Listen(ctx, "unix", slurmSocket(dir)))
	server := rpc.NewServer()
	check(server.RegisterName("Slurm", desk{s}))
	background.Detach(func() { // returns when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			background.Detach(func() { server.ServeConn(c) }) // returns when the client has closed its end
		}
	})
	return func() { _ = l.Close() } // the file goes with dir
}

// dialSlurm returns the Slurm that serveSlurm serves.
func dialSlurm(dir string) farSlurm {
	bin := filepath.Join(dir, "bin")
	check(os.Mkdir(bin, 0o700))
	script := fmt.Sprintf("#!/bin/sh\nexec %s core-squeue %s \"$@\"\n", sbatch.Quote(must(os.Executable())), sbatch.Quote(dir))
	check(os.WriteFile(filepath.Join(bin, "squeue"), []byte(script), 0o700))
	return farSlurm{&sbatch.Client{Bin: bin}, must(rpc.Dial("unix", slurmSocket(dir)))}
}

func (s farSlurm) Submit(_ context.Context, r sbatch.Request) (id sbatch.JobID, err error) {
	err = s.desk.Call("Slurm.Submit", r, &id)
	return id, err
}

func (d desk) Submit(r sbatch.Request, id *sbatch.JobID) (err error) {
	*id, err = d.slurm.Submit(d.slurm.ctx, r)
	return err
}

func (s farSlurm) Partitions(context.Context) (all []sbatch.Partition, err error) {
	err = s.desk.Call("Slurm.Partitions", true, &all)
	return all, err
}

func (d desk) Partitions(_ bool, all *[]sbatch.Partition) (err error) {
	*all, err = d.slurm.Partitions(d.slurm.ctx)
	return err
}

// runSqueue is the part core-squeue: it prints all jobs in the format that the last option gives.
func runSqueue(dir string, options []string) {
	_, format, _ := strings.Cut(options[len(options)-1], "=")
	var text string
	check(must(rpc.Dial("unix", slurmSocket(dir))).Call("Slurm.Queue", format, &text))
	must(os.Stdout.WriteString(text))
}

func (d desk) Queue(format string, text *string) error {
	s, err := d.slurm.Observe(d.slurm.ctx, time.Now())
	var lines strings.Builder
	seconds := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	for _, j := range s.Jobs {
		fields := strings.NewReplacer("%i", j.ID.String(), "%T", string(j.State), "%N", j.Nodes, "%S", seconds(j.Start),
			"%j", j.Name, "%r", j.Reason, "%V", seconds(j.Submitted), "%l", "NOT_SET", "%k", j.Comment)
		lines.WriteString(fields.Replace(format) + "\n")
	}
	*text = lines.String()
	return err
}
