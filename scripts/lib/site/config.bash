# shellcheck shell=bash
#
# The parts of the site: paths, machines, addresses.

readonly base=/var/tmp/cl-slurm
readonly home=$base/site
readonly dir=$home/now
readonly run=$dir/run
readonly log=$dir/log
readonly disks=$dir/disks
# shellcheck disable=SC2034 # lib/cluster/processes.bash reads it
readonly etc=$dir

readonly guests='fs login c1 c2'
readonly nodes='c1 c2'
readonly netns=clsite
readonly bridge=clsite
readonly subnet=10.78.0

export PATH=/usr/sbin:/usr/bin:/sbin:/bin

require_programs() {
  local program
  for program in mmdebstrap mkfs.ext4 ip ssh perl unshare nsenter; do
    command -v "$program" >/dev/null || die "$program is not installed; run scripts/setup first"
  done
  [[ -c /dev/net/tun ]] || die "this machine has no /dev/net/tun, through which guests reach a network"
}

# address GUEST prints the end of its address.
address() {
  case $1 in
    fs) printf 2 ;;
    login) printf 3 ;;
    c1) printf 11 ;;
    c2) printf 12 ;;
  esac
}

# host_name GUEST prints the machine's host name. On many sites it differs from Slurm's
# name of the node.
host_name() {
  case $1 in
    c1) printf 'node-a.cl.example' ;;
    *) printf '%s' "$1" ;;
  esac
}

# memory GUEST prints the size of its memory.
memory() {
  case $1 in
    fs) printf 512M ;;
    login) printf 1024M ;;
    *) printf 1536M ;;
  esac
}

# ssh_config prints ssh's configuration for the machines, inside the network namespace.
# The connections of root and of researcher stay open, because a new one costs a guest
# seconds.
ssh_config() {
  local guest
  for guest in $guests; do printf 'Host %s\n  HostName %s.%s\n' "$guest" "$subnet" "$(address "$guest")"; done
  cat <<CONF
Host *
  IdentityFile $root/ssh_key
  IdentitiesOnly yes
  UserKnownHostsFile $root/known_hosts
  GlobalKnownHostsFile /dev/null
  HostKeyAlias site
  BatchMode yes
  LogLevel ERROR
  ConnectTimeout 60
  ControlPath $run/ssh/%r@%n
CONF
}
