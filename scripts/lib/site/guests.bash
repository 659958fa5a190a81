# shellcheck shell=bash
#
# Guests: User-mode Linux is a kernel that is a process of this machine, and each
# process of the guest is one, too.

# start_guest GUEST starts it, unless it runs. Its disk keeps its files when it is powered
# off. Its memory is a file in /dev/shm, which is removed with it.
start_guest() {
  local guest=$1 options=() role=$1
  ! is_running "$guest" || return 0
  end_guest "$guest"
  started+=("$guest")
  case $guest in
    fs) options=(init=/usr/local/sbin/site-fs) ;;
    c*) role=compute ;;
  esac
  spawn "$guest" root ip netns exec "$netns" perl -e "$short_slices" \
    unshare --mount "$lib/boot" "$root/kernel" "$home" \
    mem="$(memory "$guest")" umid="$guest" uml_dir="$run/uml/" \
    ubd0="$disks/$guest,$root/disk" root=/dev/ubda rootfstype=ext4 rw "${options[@]}" \
    vec0:transport=tap,ifname="tap-$guest",depth=128,gro=1,mac="52:54:00:78:00:$(printf %02d "$(address "$guest")")" \
    systemd.hostname="$(host_name "$guest")" systemd.unified_cgroup_hierarchy=1 \
    site.name="$(host_name "$guest")" site.role="$role" site.address="$subnet.$(address "$guest")" \
    seccomp=auto audit=0 loglevel=4 con=null con0=null,fd:1 ssl=null
}

# Each system call of a guest is a few switches between processes of this machine. A slice of
# 100 µs (sched_setattr(2), which Debian 12 has no program for) makes them two to three times
# quicker when the machine is busy. Kernels without such slices refuse it, or ignore it.
# shellcheck disable=SC2016 # perl expands it
readonly short_slices='my $attr = pack("LLQlLQQQ", 48, 0, 0, 0, 0, 100000, 0, 0); syscall(314, 0, $attr, 0); exec @ARGV or die "$ARGV[0]: $!\n"'

# guest_processes GUEST prints the ids of all its processes on this machine.
guest_processes() {
  grep -lsz -- "^uml_dir=$run/uml/\$" /proc/[0-9]*/cmdline | xargs -r grep -lszx -- "umid=$1" | cut -d/ -f3 || true
}

# kill_guest GUEST kills its processes, and succeeds when none is left.
kill_guest() {
  local ids
  mapfile -t ids < <(guest_processes "$1")
  ((${#ids[@]} > 0)) || return 0
  kill -KILL "${ids[@]}" 2>/dev/null || true
  return 1
}

# end_guest GUEST powers it off.
end_guest() {
  local user
  poll 20 kill_guest "$1" || die "processes of $1 cannot be ended: $(guest_processes "$1" | tr '\n' ' ')"
  rm -rf -- "$run/records/$1" "${run:?}/uml/$1"
  for user in root researcher; do stop "ssh-$user@$1"; done
}

# await_guest GUEST waits until its services answer, and opens connections to it.
await_guest() {
  local user
  poll 600 answers "$1" || failed "$1" "does not answer"
  for user in root researcher; do
    [[ $1 != fs || $user == root ]] || continue
    ! is_running "ssh-$user@$1" || continue
    rm -f -- "$run/ssh/$user@$1" # of a connection that was killed
    spawn "ssh-$user@$1" root ip netns exec "$netns" ssh -F "$dir/ssh_config" -o ControlMaster=yes -N "$user@$1"
    poll 120 test -S "$run/ssh/$user@$1" || failed "ssh-$user@$1" "does not connect"
  done
}

# answers GUEST: its ssh and, on fs, NFS answer; others have mounted its disks.
answers() {
  is_running "$1" || failed "$1" "has ended"
  case $1 in
    fs) port_answers fs 2049 && port_answers fs 22 ;;
    *) port_answers "$1" 22 && on "$1" mountpoint -q /home && on "$1" mountpoint -q /shared ;;
  esac
}

port_answers() {
  # shellcheck disable=SC2016 # the inner shell expands them
  inside timeout 5 bash -c ': </dev/tcp/$0/$1' "$subnet.$(address "$1")" "$2" 2>/dev/null
}

# on GUEST COMMAND…: run a command there as root.
on() {
  local guest=$1
  shift
  inside ssh -F "$dir/ssh_config" "root@$guest" "$@" </dev/null
}
