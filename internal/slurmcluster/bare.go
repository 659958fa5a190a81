package slurmcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Bare is a cluster of one node, with a controller of its own and without an accounting database. It uses the programs
// and the munge of the chosen cluster. It is for tests and benchmarks of a controller that nobody else asks, and of sites
// without slurmdbd.
type Bare struct {
	Cluster

	dir     string
	daemons []*daemon
}

// The node of a bare cluster, and its only partition.
const (
	BareNode      = "bare1"
	BarePartition = "cpu"
)

// bareConf is the slurm.conf of a bare cluster. The node claims more than the machine has, so that many jobs fit.
const bareConf = `ClusterName=bare
SlurmctldHost=HOST(127.0.0.1)
SlurmctldPort=CONTROLLER_PORT
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=MUNGE
CryptoType=crypto/munge
MailProg=/bin/true
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd.pid
SlurmctldLogFile=DIR/slurmctld.log
SlurmdLogFile=DIR/slurmd.log
LogTimeFormat=iso8601_ms
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0,bf_interval=1,bf_resolution=1,bf_max_job_test=50,default_queue_depth=50,max_rpc_cnt=0
PriorityType=priority/basic
ReturnToService=2
KillWait=3
CompleteWait=0
MinJobAge=300
DefMemPerCPU=500
MaxJobCount=50000
SlurmdParameters=config_overrides
NodeName=bare1 NodeAddr=127.0.0.1 NodeHostname=localhost Port=NODE_PORT CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=256000 State=UNKNOWN
PartitionName=cpu Nodes=bare1 Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP
`

// bareStart bounds the start of a bare cluster, and each step of its end.
const bareStart = time.Minute

// StartBare starts a bare cluster with its files in dir, which has a short path, and into which all users may look. The
// chosen cluster has to be up, and the caller is root.
func StartBare(ctx context.Context, dir string) (*Bare, error) {
	chosen := Chosen()
	b := &Bare{Cluster: chosen, dir: dir}
	b.Conf, b.Bridge = filepath.Join(dir, "slurm.conf"), ""
	err := b.configure(ctx, filepath.Join(filepath.Dir(filepath.Dir(chosen.Conf)), "run/munge/socket"))
	if err == nil {
		err = b.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a bare cluster: %w", err), b.Stop())
	}
	return b, nil
}

func (b *Bare) configure(ctx context.Context, munge string) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name the controller: %w", err)
	}
	host, _, _ = strings.Cut(host, ".")
	controller, errController := freePort(ctx)
	node, errNode := freePort(ctx)
	if err := errors.Join(errController, errNode); err != nil {
		return err
	}
	conf := strings.NewReplacer("HOST", host, "CONTROLLER_PORT", controller, "NODE_PORT", node, "MUNGE", munge, "DIR", b.dir).Replace(bareConf)
	if plugins := filepath.Join(filepath.Dir(b.Bin), "plugins"); b.isUnpacked() {
		conf += "PluginDir=" + plugins + "\n"
	}
	errs := []error{os.WriteFile(b.Conf, []byte(conf), 0o644), os.WriteFile(filepath.Join(b.dir, "cgroup.conf"), []byte("CgroupPlugin=cgroup/v1\n"), 0o644)}
	for _, name := range []string{"state", "spool"} {
		errs = append(errs, os.Mkdir(filepath.Join(b.dir, name), 0o755))
	}
	return errors.Join(errs...)
}

// freePort returns a port of loopback that was free when freePort looked.
func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// isUnpacked reports whether the programs are those of another Debian, unpacked and not installed.
func (b *Bare) isUnpacked() bool { return strings.HasPrefix(b.Bin, Base+"/") }

// daemonPath returns the path of a daemon. An unpacked slurmd is a script among the commands, which knows its slurmstepd.
func (b *Bare) daemonPath(name string) string {
	for _, dir := range []string{b.Bin, filepath.Join(filepath.Dir(b.Bin), "sbin")} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return name
}

func (b *Bare) start(ctx context.Context) error {
	for _, args := range [][]string{{"slurmctld", "-D"}, {"slurmd", "-D", "-N", BareNode}} {
		d, err := startDaemon(filepath.Join(b.dir, args[0]+".out"), b.Env(), append([]string{b.daemonPath(args[0])}, args[1:]...)...)
		if err != nil {
			return err
		}
		b.daemons = append(b.daemons, d)
	}
	return b.await(ctx, "its node is idle", func() bool {
		state, err := b.run(ctx, "sinfo", "--noheader", "--format=%T")
		return err == nil && strings.TrimSpace(state) == "idle"
	})
}

// await waits until a condition holds.
func (b *Bare) await(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, bareStart)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %s", what, ctx.Err(), b.Log())
		}
	}
	return nil
}

// Log returns the ends of the daemons' logs.
func (b *Bare) Log() string {
	const most = 2000
	var said strings.Builder
	for _, name := range []string{"slurmctld.out", "slurmctld.log", "slurmd.out", "slurmd.log"} {
		text, err := os.ReadFile(filepath.Join(b.dir, name))
		if err == nil {
			_, _ = fmt.Fprintf(&said, "%s:\n%s\n", name, text[max(0, len(text)-most):]) // to memory
		}
	}
	return said.String()
}

// Stop ends the jobs and the daemons. The directory stays.
func (b *Bare) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*bareStart)
	defer cancel()
	var errs []error
	if len(b.daemons) > 0 {
		errs = append(errs, b.await(ctx, "it has no jobs", func() bool {
			_, _ = b.run(ctx, "scancel", "--partition="+BarePartition) // the next answer shows whether it did
			left, err := b.run(ctx, "squeue", "--noheader", "--format=%A")
			return err == nil && left == ""
		}))
	}
	for _, d := range b.daemons {
		errs = append(errs, d.stop())
	}
	return errors.Join(errs...)
}

// run runs a command of Slurm as this process's user, and returns its output.
func (c Cluster) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, args[0]), args[1:]...)
	cmd.Env = append(c.Env(), "LC_ALL=C")
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s: %w: %s", args[0], err, failed.Stderr)
	}
	return string(out), err
}
