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
    exec env -i PATH="$PATH" LANG=C.UTF-8 HOME=/ SLURM_CONF="$etc/slurm.conf" \
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

# needs NAME [PORT]: true when that daemon has to be started, which is then
# noted. Its port must be free.
needs() {
  local holder=''
  ! is_running "$1" || return 1
  [[ -z ${2-} ]] || holder=$(ss -Hltnp "sport = :$2")
  [[ -z $holder ]] || die "$1 cannot start: another program has port $2: $holder"
  started+=("$1")
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

# listens PORT: some program waits for connections there.
listens() { [[ -n $(ss -Hltn "sport = :$1") ]]; }
