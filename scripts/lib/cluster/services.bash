# shellcheck shell=bash
#
# The daemons, in the order of their dependencies. start_NAME does nothing if its
# daemon runs, so `up` both starts and repairs a cluster.

start_services() {
  spawn_mariadbd # the slowest to come up; the others need not wait for it
  start_munged
  start_nodes
  await_mariadbd
  start_slurmdbd
  make_accounts
  start_slurmctld
  start_slurmds
  await_nodes
}

start_munged() {
  needs munged || return 0
  rm -f "$run/munge/"*
  spawn munged munge munged --foreground --force --num-threads=10 \
    --key-file="$etc/munge.key" --socket="$run/munge/socket" --pid-file="$run/munge/pid" \
    --log-file="$log/munged.log" --seed-file="$run/munge/seed"
  poll 10 munge_answers || failed munged "does not answer"
}

munge_answers() { munge --no-input --socket="$run/munge/socket" --output=/dev/null 2>/dev/null; }

# The database is made in another directory and moved when it is complete. After
# an interruption it is made again.
make_database() {
  [[ ! -d $dir/db ]] || return 0
  rm -rf "$dir/db.new"
  install -d -m 0700 -o mysql -g mysql "$dir/db.new"
  mariadb-install-db --no-defaults --user=mysql --datadir="$dir/db.new" --tmpdir="$run/mysql" \
    --skip-test-db --auth-root-authentication-method=socket >"$log/mariadb-install-db.out" 2>&1 ||
    failed mariadb-install-db "could not make a database"
  mv "$dir/db.new" "$dir/db"
}

# Small and fast, and not safe against a power failure. At its start it removes temporary tables from its tmpdir, also
# those of another one that is running.
spawn_mariadbd() {
  needs mariadbd "$mariadb_port" || return 0
  make_database
  rm -f "$run/mysql/"*
  spawn mariadbd mysql mariadbd --no-defaults --datadir="$dir/db" \
    --socket="$run/mysql/socket" --pid-file="$run/mysql/pid" --tmpdir="$run/mysql" \
    --port="$mariadb_port" --bind-address=127.0.0.1 --skip-name-resolve \
    --performance-schema=off --skip-log-bin --max-connections=30 --table-open-cache=200 \
    --innodb-buffer-pool-size=64M --innodb-log-file-size=32M --innodb-lock-wait-timeout=900 \
    --innodb-flush-log-at-trx-commit=2 --innodb-doublewrite=0 --innodb-fast-shutdown=1 \
    --innodb-buffer-pool-load-at-startup=0 --innodb-buffer-pool-dump-at-shutdown=0
}

sql() { mariadb --no-defaults --socket="$run/mysql/socket" --user=root "$@"; }

await_mariadbd() {
  poll 20 mariadb_answers || failed mariadbd "does not answer"
  [[ ! -e $dir/db/made ]] || return 0
  sql <<SQL
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE OR REPLACE USER slurm@127.0.0.1 IDENTIFIED BY '$(<"$etc/db.password")';
GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;
SQL
  : >"$dir/db/made"
}

mariadb_answers() { sql -e 'SELECT 1' >/dev/null 2>&1; }

start_slurmdbd() {
  needs slurmdbd "$slurmdbd_port" || return 0
  spawn slurmdbd slurm slurmdbd -D
  poll 20 listens "$slurmdbd_port" || failed slurmdbd "does not listen"
}

# make_accounts fills the accounting database once. The cluster has to be in it
# before the first start of slurmctld.
make_accounts() {
  [[ ! -e $etc/accounts.made ]] || return 0
  account add cluster clslurm
  account add qos limited Flags=DenyOnLimit MaxSubmitJobsPerUser=2
  account add account lab,nlp Organization=clslurm QOS=normal,limited DefaultQOS=normal
  account add user "$user,root" Account=lab,nlp DefaultAccount=lab WCKeys=proj1 DefaultWCKey=proj1
  : >"$etc/accounts.made"
}

# account: add an entry. It is no error if an interrupted attempt has added it.
account() {
  local said
  said=$(sacctmgr --immediate "$@" 2>&1) || [[ $said == *already* || $said == *Nothing* ]] || die "sacctmgr $*: $said"
}

start_slurmctld() {
  needs slurmctld "$slurmctld_port" || return 0
  spawn slurmctld slurm slurmctld -D
  poll 20 listens "$slurmctld_port" || failed slurmctld "does not listen"
}

start_nodes() {
  [[ $part_namespaces == yes ]] || return 0
  local node id makers=()
  make_bridge
  for node in $nodes; do
    if node_exists "$node"; then
      ip link set "$bridge-$node" up
    else
      make_node "$node" &
      makers+=($!)
    fi
  done
  for id in "${makers[@]}"; do wait "$id" || die "a node could not be made"; done
}

start_slurmds() {
  local node
  for node in $nodes; do start_slurmd "$node"; done
}

start_slurmd() {
  needs "slurmd-$1" || return 0
  spawn_inside "$1" "slurmd-$1" slurmd -D -N "$1"
}

# await_nodes waits until every node accepts jobs. It resumes a node that a test
# or an accident left down or drained.
await_nodes() {
  poll 20 nodes_are_well && return
  die "nodes do not come up: $(sinfo --noheader --Node --format='%N %T %E' 2>&1 | sort -u | tr '\n' ';')"
}

nodes_are_well() {
  local listed node state well=0
  listed=$(sinfo --noheader --Node --partition=short --format='%N %t' 2>/dev/null) || return 1
  while read -r node state; do
    case $state in
      idle | mix | alloc | comp) continue ;;
      down* | drain* | drng* | fail*) take_back "$node" ;;
    esac
    well=1
  done <<<"$listed"
  return "$well"
}

take_back() {
  [[ " ${started[*]} " == *" $1 "* ]] || started+=("$1")
  scontrol update NodeName="$1" State=RESUME 2>/dev/null || true
}

# unfinished_jobs prints the ids of jobs that have not ended.
unfinished_jobs() {
  is_running slurmctld || return 0
  SLURM_CONF=$etc/slurm.conf squeue --noheader --all --states=PENDING,RUNNING,SUSPENDED,COMPLETING --format=%A 2>/dev/null | sort -u || true
}

# cancel_jobs ends all jobs before the nodes end, so that the accounting
# database records their ends.
cancel_jobs() {
  local jobs
  mapfile -t jobs < <(unfinished_jobs)
  ((${#jobs[@]} > 0)) || return 0
  say "cancelling ${#jobs[@]} jobs"
  SLURM_CONF=$etc/slurm.conf scancel "${jobs[@]}" 2>/dev/null || true
  poll 5 no_unfinished_jobs || true
}

no_unfinished_jobs() { [[ -z $(unfinished_jobs) ]]; }

stop_all() {
  local node name
  for node in $nodes; do stop "slurmd-$node" & done
  wait
  for name in slurmctld slurmdbd mariadbd munged; do stop "$name"; done
}

daemons_table() {
  local name well=0
  printf '%-12s %8s  %s\n' DAEMON PID STATE
  for name in munged mariadbd slurmdbd slurmctld ${nodes//n/slurmd-n}; do
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
  listed=$(timeout 10 sinfo --noheader --Node --partition=short --format='%N %T %G' 2>/dev/null) || {
    printf 'nodes: slurmctld does not answer\n'
    return 1
  }
  printf '%-12s %8s  %s\n' NODE STATE GPUS
  awk '{ sub(/\(null\)/, "-", $3); printf "%-12s %8s  %s\n", $1, $2, $3
         if ($2 !~ /^(idle|mixed|allocated|completing)$/) bad = 1 }
       END { exit bad || NR == 0 }' <<<"$listed"
}
