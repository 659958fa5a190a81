# shellcheck shell=bash
#
# Daemons: start, record, recognise, end.
#
# A record, run/records/NAME, holds a process id, when that process began and
# which boot that was in. Together they name one process for ever, so a process
# id that has been given to somebody else is never taken for a daemon of ours.

# spawn NAME OWNER PROGRAM…: start a daemon that shares nothing with its caller:
# own session, no open descriptors, an environment of four lines. Its record is
# written before the program begins, so there is no moment at which it runs
# unknown. What it says before it opens its own log goes to log/NAME.out.
spawn() {
  local name=$1 owner=$2 identity=()
  shift 2
  [[ $owner == root ]] || identity=(setpriv --reuid "$owner" --regid "$owner" --init-groups)
  (
    exec </dev/null >"$log/$name.out" 2>&1
    close_descriptors
    cd /
    umask 022
    printf '%s %s\n' "$BASHPID" "$(birth "$BASHPID")" >"$run/records/$name"
    exec env -i PATH="$PATH" LANG=C.UTF-8 HOME=/ SLURM_CONF="$etc/slurm.conf" \
      setsid "${identity[@]}" "$@"
  ) &
}

# needs NAME: true when that daemon has to be started, which is then noted.
needs() {
  ! is_running "$1" || return 1
  started+=("$1")
}

close_descriptors() {
  local path descriptor
  for path in /proc/self/fd/*; do
    descriptor=${path##*/}
    ((descriptor <= 2)) || eval "exec $descriptor>&-"
  done
}

# birth PID prints when that process began: the 22nd field of its stat, counted
# behind the program's name, which may hold spaces, and this boot's id.
birth() {
  local stat boot fields
  { read -r stat </proc/"$1"/stat; } 2>/dev/null || return 1
  read -r boot </proc/sys/kernel/random/boot_id
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != Z ]] || return 1
  printf '%s %s' "${fields[19]}" "$boot"
}

# is_running NAME: the recorded process lives; pid is then its id.
is_running() {
  local recorded now
  pid='' recorded=''
  { read -r pid recorded <"$run/records/$1"; } 2>/dev/null || return 1
  now=$(birth "$pid") || return 1
  [[ $now == "$recorded" ]]
}

# stop NAME: ask the daemon to end, and kill it when it has not ended after ten
# seconds.
stop() {
  if is_running "$1"; then
    kill -TERM "$pid" 2>/dev/null || true
    if ! poll 10 has_ended "$1"; then
      kill -KILL "$pid" 2>/dev/null || true
      poll 5 has_ended "$1" || die "$1 (process $pid) cannot be ended"
    fi
  fi
  rm -f "$run/records/$1"
}

has_ended() { ! is_running "$1"; }

# failed NAME WHAT: a daemon did not come up; show why.
failed() {
  printf 'slurm-cluster: %s %s\n' "$1" "$2" >&2
  cat "$log/$1".{out,log} 2>/dev/null | tail -n 8 >&2
  exit 1
}

# listens PORT: something accepts connections there, on the cluster's address.
listens() { (exec 3<>"/dev/tcp/$address/$1") 2>/dev/null; }

# check_ports refuses to start where another program has a port or an address.
check_ports() {
  local port holder
  for port in $mariadb_port $slurmctld_port $slurmd_port $slurmdbd_port; do
    holder=$(ss -Hltnp "sport = :$port")
    [[ -z $holder ]] || die "port $port is taken by another program: $holder"
  done
  [[ $part_namespaces == yes ]] || return 0
  holder=$(ip -o -4 address show | awk -v bridge=$bridge -v subnet="$subnet." \
    '$2 != bridge && index($4, subnet) == 1 { print $2, $4 }')
  [[ -z $holder ]] || die "the addresses $subnet.0/24 are taken: $holder"
}
