# shellcheck shell=bash
#
# The parts of the cluster: paths, features, and every configuration file.

readonly base=/var/tmp/cl-slurm

# Clusters of different Slurms share nothing but the machine: each has its own
# directory, bridge, addresses and ports. The bridge's name is also the beginning
# of the names of the cluster's interfaces, and the name of its cgroups.
readonly slurm=${SLURM-}
case $slurm in
  '') dir=$base/cluster bridge=clslurm subnet=10.77.0 ports=168 ;;
  trixie) dir=$base/cluster-trixie bridge=cltrixie subnet=10.77.1 ports=169 ;;
  sid) dir=$base/cluster-sid bridge=clsid subnet=10.77.2 ports=170 ;;
  *) die "SLURM=$slurm: it is trixie, sid, or unset for this machine's own Slurm" ;;
esac

# The second cluster of a Slurm is for tests that would disturb others: see second_lines.
readonly second=${CLUSTER_SECOND:+yes}
[[ -z $second ]] || dir+=-second bridge+=2 subnet=10.77.$((${subnet##*.} + 3)) ports=$((ports + 3))
readonly dir bridge subnet ports
readonly programs=$base/slurm/$slurm # of another Debian's Slurm
readonly etc=$dir/etc
readonly run=$dir/run
readonly log=$dir/log

readonly user=researcher
nodes='n1 n2 n3 n4' all_nodes='n[1-4]' tres=gres/gpu preempt=REQUEUE
[[ -z $second ]] || nodes=$(printf 'n%s ' {1..26}) all_nodes='n[1-26]' tres=gres/gpu,license/cltest preempt=SUSPEND,GANG
readonly nodes all_nodes tres preempt
readonly gpu_nodes='n3 n4'

readonly mariadb_port=${ports}06 slurmctld_port=${ports}17 slurmd_port=${ports}18 slurmdbd_port=${ports}19

export PATH=/usr/sbin:/usr/bin:/sbin:/bin
[[ -z $slurm ]] || PATH=$programs/bin:$programs/sbin:$PATH

require_programs() {
  local program
  for program in munged mariadbd slurmdbd slurmctld slurmd ip; do
    command -v "$program" >/dev/null || die "$program is not installed; run scripts/setup first"
  done
  getent passwd "$user" >/dev/null || die "the user $user does not exist; run scripts/setup first"
}

# choose_parts detects the features that the machine supports. CLUSTER_WITHOUT
# lists features to leave out.
choose_parts() {
  part_namespaces=no part_cgroups=no
  [[ " ${CLUSTER_WITHOUT-} " == *' namespaces '* ]] || ! namespaces_work || part_namespaces=yes
  [[ " ${CLUSTER_WITHOUT-} " == *' cgroups '* || $part_namespaces == no ]] || ! cgroups_work || part_cgroups=yes
  # A node with a network of its own has its own address. Otherwise all daemons
  # share the loopback address.
  if [[ $part_namespaces == yes ]]; then address=$subnet.1; else address=127.0.0.1; fi
}

namespaces_work() {
  unshare --net --mount --uts sh -c '
    ip link add probe type bridge && ip link add probe0 type veth peer name probe1
    mount -t tmpfs probe /mnt && mknod /mnt/probe c 1 3' 2>/dev/null
}

# cgroups_work checks for the version 1 controllers that Slurm's plugins use.
cgroups_work() {
  local controller
  for controller in memory devices freezer cpuacct; do
    [[ -w /sys/fs/cgroup/$controller/tasks ]] || return 1
  done
  unshare --cgroup true 2>/dev/null
}

report_missing_parts() {
  [[ $part_namespaces == yes ]] || say "no namespaces here: nodes share this machine's network, host name and /dev"
  [[ $part_cgroups == yes ]] || say "no cgroup v1 here: memory and device limits are not enforced"
}

# fingerprint prints the same for equal clusters: equal configuration files,
# scripts that set up nodes and accounts, and Slurm's version. Comments in the
# scripts do not count.
fingerprint() {
  {
    slurm_conf
    gres_conf
    cgroup_conf
    prolog
    slurmdbd_conf -
    slurmd -V
    id "$user"
    grep -v '^ *#' "$lib/furnish"
    declare -f start_munged spawn_mariadbd start_slurmdbd start_slurmctld start_slurmd \
      make_accounts make_bridge make_node enter_cgroups spawn spawn_inside
  } | sha256sum | cut -c1-64
}

# write_configuration makes the directory tree. It writes the fingerprint last:
# a tree without one is incomplete, and is removed.
write_configuration() {
  install -d -m 0755 "$dir" "$etc" "$run" "$run/records" "$run/prolog" "$log" "$dir/spool"
  install -d -m 0755 -o munge -g munge "$run/munge"
  install -d -m 0755 -o mysql -g mysql "$run/mysql"
  install -d -m 0755 -o slurm -g slurm "$run/slurm"
  install -d -m 0700 -o slurm -g slurm "$dir/spool/slurmctld"
  local node
  for node in $nodes; do install -d -m 0755 "$dir/spool/$node"; done
  # Daemons that do not run as root open their logs themselves.
  install -m 0644 -o slurm -g slurm /dev/null "$log/slurmctld.log"
  install -m 0644 -o slurm -g slurm /dev/null "$log/slurmdbd.log"
  install -m 0644 -o munge -g munge /dev/null "$log/munged.log"
  [[ $part_namespaces == yes ]] || make_gpu_files "$dir/dev"

  head -c 128 /dev/urandom >"$etc/munge.key"
  chown munge:munge "$etc/munge.key"
  chmod 0400 "$etc/munge.key"
  (umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$etc/db.password")

  slurm_conf >"$etc/slurm.conf"
  gres_conf >"$etc/gres.conf"
  cgroup_conf >"$etc/cgroup.conf"
  prolog >"$etc/prolog"
  chmod 0755 "$etc/prolog"
  install -m 0600 -o slurm -g slurm /dev/null "$etc/slurmdbd.conf"
  slurmdbd_conf "$(<"$etc/db.password")" >"$etc/slurmdbd.conf"
  printf '%s\n' "$1" >"$etc/fingerprint"
}

slurm_conf() {
  local proctrack=proctrack/linuxproc task=task/none gather=jobacct_gather/linux
  if [[ $part_cgroups == yes ]]; then
    proctrack=proctrack/cgroup task=task/cgroup gather=jobacct_gather/cgroup
  fi
  cat <<CONF
ClusterName=clslurm
SlurmctldHost=$(uname -n | cut -d. -f1)($address)
SlurmctldPort=$slurmctld_port
SlurmdPort=$slurmd_port
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$run/munge/socket
CryptoType=crypto/munge
MailProg=/bin/true

StateSaveLocation=$dir/spool/slurmctld
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$run/slurm/slurmctld.pid
SlurmdPidFile=$run/slurmd-%n.pid
SlurmctldLogFile=$log/slurmctld.log
SlurmdLogFile=$log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
LogTimeFormat=iso8601_ms

ProctrackType=$proctrack
TaskPlugin=$task
JobAcctGatherType=$gather
JobAcctGatherFrequency=task=2
Prolog=$etc/prolog
MpiDefault=none
SwitchType=switch/none
PrologFlags=Alloc

# Small intervals: a job starts within half a second of its submission.
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0,bf_interval=1,bf_resolution=1,bf_max_job_test=200,default_queue_depth=200,bf_window=1440,bf_continue,max_rpc_cnt=0
PriorityType=priority/multifactor
ReturnToService=2
KillWait=3
CompleteWait=0
InactiveLimit=0
MinJobAge=300
SlurmctldTimeout=30
# A busy machine may keep a node from answering for half a minute. With Slurm's own times, slurmctld and
# slurmd then give up jobs that they were about to launch (Slurm src/slurmctld/job_mgr.c:
# _purge_missing_jobs, src/slurmd/slurmd/req.c: _wait_for_request_launch_prolog, _launch_job_fail).
BatchStartTimeout=300
MessageTimeout=60
SlurmdTimeout=60
UnkillableStepTimeout=300
TCPTimeout=3
DefMemPerCPU=500
JobRequeue=1
MaxJobCount=50000
MaxArraySize=10001

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$address
AccountingStoragePort=$slurmdbd_port
AccountingStorageUser=slurm
AccountingStoragePass=socket=$run/munge/socket
AccountingStorageEnforce=associations,limits,qos,wckeys
AccountingStorageTRES=$tres
AccountingStoreFlags=job_comment
TrackWCKey=yes

# The jobs of the partition urgent take the place of jobs of spot, which are cancelled, and of back,
# which are put back into the queue as far as they may be.
PreemptType=preempt/partition_prio
PreemptMode=$preempt

# The nodes claim more than the machine has, so that many jobs fit.
SlurmdParameters=config_overrides
GresTypes=gpu
CONF
  plugin_lines
  second_lines
  node_lines
  cat <<CONF
PartitionName=cpu Nodes=n[1-2] Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP PreemptMode=OFF
PartitionName=gpu Nodes=n[3-4] MaxTime=2-00:00:00 DefaultTime=01:00:00 State=UP PreemptMode=OFF
PartitionName=short Nodes=$all_nodes MaxTime=00:10:00 DefaultTime=00:01:00 State=UP PreemptMode=OFF
PartitionName=spot Nodes=n[1-2] MaxTime=01:00:00 DefaultTime=00:10:00 State=UP PreemptMode=CANCEL
PartitionName=back Nodes=n[1-2] MaxTime=01:00:00 DefaultTime=00:10:00 State=UP PreemptMode=REQUEUE
PartitionName=urgent Nodes=n[1-2] MaxTime=01:00:00 DefaultTime=00:10:00 State=UP PreemptMode=OFF PriorityTier=10
CONF
}

# The prolog fails on a node for the jobs of a partition while a test wants it to:
# while there is the file PARTITION.NODE in run/prolog.
prolog() {
  cat <<PROLOG
#!/bin/sh
[ ! -e "$run/prolog/\$SLURM_JOB_PARTITION.\$SLURMD_NODENAME" ]
PROLOG
}

# In the second cluster jobs are also suspended for others and take turns, those that end with exit status
# 42 are held, and there are licences. Slurm measures the energy of jobs on nodes that have the files of a
# Cray's sensor (/sys/cray/pm_counters): a test makes them.
second_lines() {
  [[ -n $second ]] || return 0
  cat <<CONF
SchedulerTimeSlice=5
RequeueExitHold=42
Licenses=cltest:100,scarce:1
AcctGatherEnergyType=acct_gather_energy/pm_counters
CONF
}

plugin_lines() { [[ -z $slurm ]] || printf 'PluginDir=%s\n' "$programs/plugins"; }

node_lines() {
  local node where what
  for node in $nodes; do
    where="NodeAddr=$subnet.1${node#n} NodeHostname=$node"
    [[ $part_namespaces == yes ]] || where="NodeAddr=127.0.0.1 NodeHostname=localhost Port=$((slurmd_port + 2 + ${node#n}))"
    what=Feature=cpuonly
    ! has_gpus "$node" || what='Gres=gpu:a100:4 Feature=a100'
    printf 'NodeName=%s %s CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=256000 State=UNKNOWN %s\n' \
      "$node" "$where" "$what"
  done
}

has_gpus() { [[ " $gpu_nodes " == *" $1 "* ]]; }

gres_conf() {
  local node devices=/dev
  [[ $part_namespaces == yes ]] || devices=$dir/dev
  printf 'AutoDetect=off\n'
  for node in $gpu_nodes; do
    printf 'NodeName=%s Name=gpu Type=a100 File=%s/nvidia[0-3]\n' "$node" "$devices"
  done
}

cgroup_conf() {
  cat <<CONF
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
ConstrainDevices=yes
AllowedRAMSpace=100
CONF
}

slurmdbd_conf() {
  cat <<CONF
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$slurmdbd_port
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket=$run/munge/socket
LogFile=$log/slurmdbd.log
PidFile=$run/slurm/slurmdbd.pid
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$mariadb_port
StorageUser=slurm
StoragePass=$1
StorageLoc=slurm_acct_db
TrackWCKey=yes
CommitDelay=1
CONF
  plugin_lines
}
