package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/pilot/awsbatch"
)

// awsBatch has the flags of one call of aws-batch (aws_batch_worker_manager.py: add_arguments_to_subparser).
type awsBatch struct {
	region, definition, user, queue, filter, secret, role string
}

func (*awsBatch) describe() (name, short, long string) {
	return "aws-batch", "Run workers in jobs of AWS Batch", `aws-batch runs each worker in a job of AWS Batch. It takes the credentials that AWS's own
programs would take: of the environment, a profile, or the role of this machine.

A worker of cl-server gets a token of its own. For other servers, put the user's name
and password into a secret of AWS Secrets Manager, and name it with --worker-secret.`
}

func (a *awsBatch) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.region, "region", "us-east-1", "`region` of the job queue")
	flags.StringVar(&a.queue, "job-queue", "codalab-batch-cpu", "`name` of the job queue")
	flags.StringVar(&a.definition, "job-definition-name", "codalab-worker", "`name` of the job definition, which managers may share")
	flags.StringVar(&a.user, "user", "root", "`user` of the worker in its container")
	flags.StringVar(&a.filter, "job-filter", "", "count as workers also the jobs of the queue whose whole names match this `regexp`")
	flags.StringVar(&a.secret, "worker-secret", "", "`ARN` of a secret with the keys username and password, for workers of servers without worker tokens")
	flags.StringVar(&a.role, "execution-role", "", "`ARN` of the role with which ECS reads the secret and the image")
}

func (*awsBatch) exposed() []string { return nil }

func (a *awsBatch) open(ctx context.Context, w cloudWorkers) (cloudBackend, error) {
	if a.secret != "" && a.role == "" {
		return nil, errors.New("--worker-secret needs --execution-role: ECS reads the secret with that role")
	}
	if err := w.checkPrefix("instances"); err != nil {
		return nil, err
	}
	var filter *regexp.Regexp
	if a.filter != "" { // Python's re.fullmatch
		var err error
		if filter, err = regexp.Compile(`\A(?:` + a.filter + `)\z`); err != nil {
			return nil, fmt.Errorf("--job-filter %s: want a regular expression as Go reads it, which has no (?=…) or (?!…): %w", a.filter, err)
		}
	}
	client, err := awsbatch.Connect(ctx, a.region)
	if err != nil {
		return nil, err
	}
	definition := awsbatch.Definition{
		Name: a.definition, Image: w.Image, User: a.user, CPUs: w.CPUs, GPUs: w.GPUs, MemoryMB: w.MemoryMB, Secret: a.secret, ExecutionRole: a.role,
	}
	if w.WorkDirPrefix != "" {
		definition.HostDir = filepath.Join(w.WorkDirPrefix, "cl_worker_"+w.Mark+"_work_dir")
	}
	w.Worker.WorkDir = awsbatch.WorkDir
	return &awsbatch.Backend{
		Client: client, Queue: a.queue, Mark: w.Mark, Filter: filter, Definition: definition, Worker: w.Worker, Now: w.Now,
	}, nil
}
