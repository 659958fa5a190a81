# shellcheck shell=bash
#
# The controller: daemons of this machine, on the guests' network and in the guests' root
# file system. `room` holds its namespaces.

readonly daemons='munged mariadbd slurmdbd slurmctld'

start_controller() {
  start_room
  start_daemon munged munge munged --foreground
  start_daemon mariadbd mysql mariadbd --no-defaults --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock \
    --bind-address=127.0.0.1 --skip-log-bin --performance-schema=off --innodb-buffer-pool-size=64M \
    --innodb-flush-log-at-trx-commit=2 --innodb-lock-wait-timeout=900
  poll 60 mariadbd_answers || failed mariadbd "does not answer"
  make_database
  start_daemon slurmdbd slurm slurmdbd -D
  poll 60 controller_listens 6819 || failed slurmdbd "does not listen"
  make_accounts
  start_daemon slurmctld slurm slurmctld -D
  poll 60 controller_listens 6817 || failed slurmctld "does not listen"
}

# start_room makes the namespaces of the controller. Its changes to the root file system end with
# the site.
start_room() {
  ! is_running room || return 0
  started+=(ctl)
  install -d -m 0755 "$disks/ctl" "$disks/ctl/upper" "$disks/ctl/work" "$disks/ctl/root"
  rm -f -- "$disks/ctl/upper/run-is-ready" # of a room that was killed
  spawn room root ip netns exec "$netns" unshare --mount --uts "$lib/room" "$root/root" "$disks/ctl"
  poll 30 test -e "$disks/ctl/upper/run-is-ready" || failed room "cannot be furnished"
}

# on_controller PROGRAM…: run a program there, as root.
on_controller() {
  is_running room || return 1
  nsenter --target "$pid" --net --mount --uts --root --wdns=/ env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 "$@"
}

start_daemon() {
  local name=$1 user=$2
  shift 2
  ! is_running "$name" || return 0
  is_running room || die "the controller has ended"
  spawn "$name" root nsenter --target "$pid" --net --mount --uts --root --wdns=/ \
    env -u SLURM_CONF setpriv --reuid "$user" --regid "$user" --init-groups "$@"
}

mariadbd_answers() { on_controller mariadb -e 'SELECT 1' >/dev/null 2>&1; }

make_database() {
  on_controller mariadb <<'SQL'
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@127.0.0.1 IDENTIFIED BY 'site';
GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;
SQL
}

controller_listens() { [[ -n $(inside ss -Hltn "sport = :$1") ]]; }

# make_accounts fills the accounting database. The cluster has to be in it before the
# first start of slurmctld.
make_accounts() {
  [[ ! -e $dir/accounts.made ]] || return 0
  account add cluster clsite
  account add account lab Organization=site
  account add user researcher,root Account=lab DefaultAccount=lab
  : >"$dir/accounts.made"
}

# account: add an entry. It is no error if an interrupted attempt has added it.
account() {
  local said
  said=$(on_controller sacctmgr --immediate "$@" 2>&1) || [[ $said == *already* || $said == *Nothing* ]] || die "sacctmgr $*: $said"
}

# await_nodes waits until every node accepts jobs. It resumes a node that a test or an
# accident left down or drained.
await_nodes() {
  local node
  poll 600 nodes_are_well || die "nodes do not come up: $(on_controller sinfo --noheader --Node --format='%N %T %E' 2>&1 | tr '\n' ';')"
  for node in $nodes; do await_guest "$node"; done
}

nodes_are_well() {
  local listed node state well=0
  for node in $nodes; do is_running "$node" || failed "$node" "has ended"; done
  listed=$(on_controller sinfo --noheader --Node --format='%N %t' 2>/dev/null) || return 1
  while read -r node state; do
    case $state in
      idle | mix | alloc | comp) continue ;;
      down* | drain* | drng* | fail*) on_controller scontrol update NodeName="$node" State=RESUME 2>/dev/null || true ;;
    esac
    well=1
  done <<<"$listed"
  return "$well"
}

# stop_controller ends all processes in the controller's namespaces. A mount namespace
# that is open keeps its number. Otherwise the kernel would give the number to the next
# namespace of the machine, perhaps a container's, and the container would be killed.
stop_controller() {
  local name room='' held=''
  if is_running room; then
    exec {held}<"/proc/$pid/ns/mnt"
    room=$(readlink "/proc/self/fd/$held")
  fi
  for name in slurmctld slurmdbd mariadbd munged room; do stop "$name"; done
  [[ -z $room ]] || poll 20 kill_namespace "$room" || die "processes of the controller cannot be ended"
  [[ -z $held ]] || exec {held}<&-
}

# kill_namespace NAMESPACE kills the processes of a mount namespace that the caller holds
# open, and succeeds when none is left.
kill_namespace() {
  local ids
  mapfile -t ids < <(find /proc/[0-9]*/ns/mnt -printf '%l %p\n' 2>/dev/null | awk -F'[ /]' -v room="$1" '$1 == room { print $4 }' || true)
  ((${#ids[@]} > 0)) || return 0
  kill -KILL "${ids[@]}" 2>/dev/null || true
  return 1
}

processes_table() {
  local name well=0
  printf '%-12s %8s  %s\n' MACHINE PID STATE
  for name in $guests $daemons; do
    if is_running "$name"; then
      printf '%-12s %8s  running\n' "$name" "$pid"
    else
      printf '%-12s %8s  stopped\n' "$name" -
      well=1
    fi
  done
  return "$well"
}

nodes_table() {
  local listed
  listed=$(on_controller timeout 10 sinfo --noheader --Node --format='%N %T' 2>/dev/null) || {
    printf 'nodes: slurmctld does not answer\n'
    return 1
  }
  printf '%-12s %8s\n' NODE STATE
  awk '{ printf "%-12s %8s\n", $1, $2
         if ($2 !~ /^(idle|mixed|allocated|completing)$/) bad = 1 }
       END { exit bad || NR == 0 }' <<<"$listed"
}
