# shellcheck shell=bash
#
# Daemons: start, record, recognise, end.
#
# A record, run/records/NAME, has a process id, the start time of that process,
# and the id of the boot. Together they identify one process for ever, so that a
# reused process id is never mistaken for a daemon of the cluster.

# spawn NAME OWNER PROGRAM…: start a daemon with a session of its own, no open
# descriptors of the caller, and an environment of five lines. Its record is
# written before the program starts, so that it never runs without a record. Its
# output before it opens its own log goes to log/NAME.out.
spawn() {
  local name=$1 owner=$2 identity=() id
  shift 2
  [[ $owner == root ]] || identity=(setpriv --reuid "$owner" --regid "$owner" --init-groups)
  (
    exec </dev/null >"$log/$name.out" 2>&1
    close_descriptors
    cd /
    umask 022
    id=$BASHPID # inside $(…) it is another one
    printf '%s %s\n' "$id" "$(birth "$id")" >"$run/records/$name"
    # slurmctld looks addresses up in the DNS. One that does not answer must not hold it up.
    exec env -i PATH="$PATH" LANG=C.UTF-8 HOME=/ SLURM_CONF="$etc/slurm.conf" RES_OPTIONS='timeout:1 attempts:1' \
      setsid "${identity[@]}" "$@"
  ) &
}

close_descriptors() {
  local path descriptor
  for path in /proc/self/fd/*; do
    descriptor=${path##*/}
    ((descriptor <= 2)) || eval "exec $descriptor>&-"
  done
}

# needs NAME [PORT]: true when that daemon has to be started. It notes the name
# for the report, and checks that the port is free.
needs() {
  local holder=''
  ! is_running "$1" || return 1
  [[ -z ${2-} ]] || holder=$(ss -Hltnp "sport = :$2")
  [[ -z $holder ]] || die "$1 cannot start: another program has port $2: $holder"
  started+=("$1")
}

# birth PID prints the id of the boot and the start time of a process: the 22nd
# field of its stat, counted after the program's name, which may have spaces.
birth() {
  local stat boot fields
  { read -r stat </proc/"$1"/stat; } 2>/dev/null || return 1
  read -r boot </proc/sys/kernel/random/boot_id
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != Z ]] || return 1
  printf '%s %s' "${fields[19]}" "$boot"
}

# is_running NAME: the recorded process is alive. It sets pid.
is_running() {
  local recorded now
  pid='' recorded=''
  { read -r pid recorded <"$run/records/$1"; } 2>/dev/null || return 1
  now=$(birth "$pid") || return 1
  [[ $now == "$recorded" ]]
}

# stop NAME: send the daemon TERM, and KILL after ten seconds.
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

# failed NAME WHAT: say that a daemon did not start, and show its log.
failed() {
  printf '%s: %s %s\n' "${0##*/}" "$1" "$2" >&2
  cat "$log/$1".{out,log} 2>/dev/null | tail -n 8 >&2
  exit 1
}

# listens PORT: a program listens on the port.
listens() { [[ -n $(ss -Hltn "sport = :$1") ]]; }
