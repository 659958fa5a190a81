package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/pilot/azurebatch"
)

// azureBatch has the flags of one call of azure-batch (azure_batch_worker_manager.py: add_arguments_to_subparser).
type azureBatch struct {
	account, key, keyFile, serviceURL, logContainer, job, user string
	passwordFile, options                                      string
	slots                                                      int64
}

func (*azureBatch) describe() (name, short, long string) {
	return "azure-batch", "Run workers in tasks of Azure Batch", `azure-batch runs each worker in a task of Azure Batch, in the job that --job-id names.
It logs in with a key of the account: from --account-key-file, or AZURE_BATCH_ACCESS_KEY.
Without a key it logs in at Entra as Azure's own programs do: with the variables
AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, a workload identity, the
managed identity of this machine, or the login of "az login".

A worker of cl-server gets a token of its own. For other servers, put the user's name
and password into a file on each node, and name it with --worker-password-file.`
}

func (a *azureBatch) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.account, "account-name", "", "`name` of the Batch account (default: $AZURE_BATCH_ACCOUNT)")
	flags.StringVar(&a.key, "account-key", "", "a `key` of the account; other users of this machine can read it, and --account-key-file is safer")
	flags.StringVar(&a.keyFile, "account-key-file", "", "`file` with a key of the account, which only you may read (default: $AZURE_BATCH_ACCESS_KEY, or a login at Entra)")
	flags.StringVar(&a.serviceURL, "service-url", "", "`URL` of the account (default: $AZURE_BATCH_ENDPOINT)")
	flags.StringVar(&a.logContainer, "log-container-url", "", "`URL` with a SAS of the container for workers' logs (default: $CL_AZURE_LOG_CONTAINER_URL)")
	flags.StringVar(&a.job, "job-id", "", "`id` of the job to which the tasks are added")
	flags.StringVar(&a.user, "user", "root", "`user` of the worker in its container")
	flags.Int64Var(&a.slots, "task-slots", 1, "`number` of a node's task slots that a worker takes")
	flags.StringVar(&a.options, "container-options", "", "`options` of docker create in place of those that the worker's containers need")
	flags.StringVar(&a.passwordFile, "worker-password-file", "", "`file` on each node with the user's name and password in two lines, for workers of servers without worker tokens")
}

func (a *azureBatch) exposed() (warnings []string) {
	if a.key != "" {
		warnings = append(warnings, "other users of this machine can read --account-key: use --account-key-file or AZURE_BATCH_ACCESS_KEY")
	}
	if a.logContainer != "" {
		warnings = append(warnings, "other users of this machine can read the signature in --log-container-url: use CL_AZURE_LOG_CONTAINER_URL")
	}
	return warnings
}

func (a *azureBatch) open(_ context.Context, w cloudWorkers) (cloudBackend, error) {
	service := cmp.Or(a.serviceURL, w.Getenv("AZURE_BATCH_ENDPOINT"))
	logs := cmp.Or(a.logContainer, w.Getenv("CL_AZURE_LOG_CONTAINER_URL"))
	switch {
	case a.job == "":
		return nil, errors.New("--job-id is missing: name a job of the Batch account")
	case !jobForm.MatchString(a.job):
		return nil, fmt.Errorf("--job-id %q: the id of a job has up to 64 letters, digits, hyphens and underscores", termtext.OneLine(a.job))
	case service == "":
		return nil, errors.New("--service-url is missing: the portal shows it as the URL of the Batch account")
	case a.slots < 1:
		return nil, fmt.Errorf("--task-slots is %d: want 1 or more", a.slots)
	}
	if err := w.checkPrefix("nodes"); err != nil {
		return nil, err
	}
	if !strings.Contains(service, "://") {
		service = "https://" + service // the variable of Azure's own programs may have no scheme
	}
	if logs != "" {
		if _, err := azurebatch.OpenLogContainer(logs, policy.ClientOptions{}); err != nil {
			return nil, err
		}
	}
	credential, err := a.credential(w.Getenv)
	if err != nil {
		return nil, err
	}
	client, err := azurebatch.NewClient(service, credential, azurebatch.Options{Now: w.Now})
	if err != nil {
		return nil, err
	}
	w.Worker.WorkDir = cmp.Or(w.WorkDirPrefix, workDirInTask)
	return &azurebatch.Backend{
		Client: client, Job: a.job, Mark: w.Mark, Worker: w.Worker, Logger: w.Log, Now: w.Now,
		Shape: azurebatch.Shape{
			Image: w.Image, CPUs: w.CPUs, GPUs: w.GPUs, MemoryMB: w.MemoryMB, User: a.user, Slots: a.slots, WorkDir: w.WorkDirPrefix,
			PasswordFile: a.passwordFile, LogContainer: logs, Options: a.options,
		},
	}, nil
}

// jobForm is the form of a job's id. Batch adds a number to the id of a schedule for the schedule's jobs ("Jobs and tasks in
// Azure Batch": Scheduled jobs).
var jobForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(:job-[0-9]+)?$`)

// workDirInTask is the directory of a worker's files in the working directory of its task, which is on the node's large
// disk. The root of a container is on the disk of the node's system.
const workDirInTask = "codalab-worker"

// credential returns the login at the Batch account.
func (a *azureBatch) credential(getenv func(string) string) (azurebatch.Credential, error) {
	c := azurebatch.Credential{Account: cmp.Or(a.account, getenv("AZURE_BATCH_ACCOUNT")), Key: a.key}
	switch {
	case c.Key != "" && a.keyFile != "":
		return c, errors.New("--account-key and --account-key-file exclude each other")
	case a.keyFile != "":
		key, err := account.ReadSecret("account key", a.keyFile)
		if err != nil {
			return c, err
		}
		c.Key = key
	case c.Key == "":
		c.Key = getenv("AZURE_BATCH_ACCESS_KEY")
	}
	if c.Key != "" {
		return c, nil
	}
	entra, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return c, fmt.Errorf("there is no key of the Batch account, and no login at Entra: %w", err)
	}
	c.Entra = entra
	return c, nil
}
