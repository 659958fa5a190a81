# shellcheck shell=bash
#
# Nodes: a network bridge, and for each node its namespaces and a cgroup in
# each hierarchy. The namespaces have names, so that a restarted slurmd joins
# the same ones. The cgroups list every process of a node.

# controllers prints the version 1 hierarchies, one line for each: "memory",
# "cpu,cpuacct".
controllers() { awk -F: '$2 != "" && $2 !~ /=/ { print $2 }' /proc/self/cgroup; }

# check_address fails if another interface uses the addresses.
check_address() {
  local holder
  [[ $part_namespaces == yes ]] || return 0
  holder=$(ip -o -4 address show | awk -v bridge="$bridge" -v subnet="$subnet." \
    '$2 != bridge && index($4, subnet) == 1 { print $2, $4 }')
  [[ -z $holder ]] || die "the addresses $subnet.0/24 are taken: $holder"
}

make_bridge() {
  [[ -e /sys/class/net/$bridge ]] || ip link add "$bridge" type bridge
  ip address replace "$subnet.1/24" dev "$bridge"
  ip link set "$bridge" up

  # Namespaces can only be kept as files on a private mount.
  install -d -m 0755 "$run/namespaces"
  mountpoint -q "$run/namespaces" && return
  mount --bind "$run/namespaces" "$run/namespaces"
  mount --make-private "$run/namespaces"
}

# node_exists NODE: its namespaces exist (they do not survive a reboot), and are
# completely set up.
node_exists() {
  [[ -e $run/namespaces/$1.furnished && -e /run/netns/$bridge-$1 ]] && mountpoint -q "$run/namespaces/$1.mnt"
}

# make_node NODE makes its network, then runs `furnish` inside.
make_node() {
  local node=$1 file kept=()
  forget_node "$node"
  ip netns add "$bridge-$node"
  ip link add "$bridge-$node" type veth peer name eth0 netns "$bridge-$node"
  ip link set "$bridge-$node" master "$bridge" up
  for file in mnt uts cgroup; do : >"$run/namespaces/$node.$file"; done
  kept=(--mount="$run/namespaces/$node.mnt" --uts="$run/namespaces/$node.uts")
  [[ $part_cgroups == no ]] || kept+=(--cgroup="$run/namespaces/$node.cgroup")
  (
    [[ $part_cgroups == no ]] || enter_cgroups "$node"
    exec nsenter --net="/run/netns/$bridge-$node" unshare "${kept[@]}" --propagation slave \
      "$lib/furnish" "$node" "$subnet.1${node#n}" "$part_cgroups" "$(gpu_major)" "$run/namespaces"
  )
  : >"$run/namespaces/$node.furnished"
}

# enter_cgroups NODE moves this process into the node's cgroups, which become
# the roots of its cgroup namespace.
enter_cgroups() {
  local controller path
  for controller in $(controllers); do
    path=/sys/fs/cgroup/$controller/$bridge/$1
    mkdir -p "$path"
    if [[ $controller == *cpuset* ]]; then
      # A new cpuset is empty, and cannot have processes before it has CPUs.
      inherit_cpuset "/sys/fs/cgroup/$controller" "${path%/*}"
      inherit_cpuset "${path%/*}" "$path"
    fi
    printf '%s' "$BASHPID" >"$path/cgroup.procs"
  done
}

inherit_cpuset() {
  cat "$1/cpuset.cpus" >"$2/cpuset.cpus"
  cat "$1/cpuset.mems" >"$2/cpuset.mems"
}

# spawn_inside NODE NAME PROGRAM…: spawn, as root, in the node.
spawn_inside() {
  local node=$1 name=$2 enter=()
  shift 2
  [[ $part_namespaces == no ]] || enter=(nsenter --net="/run/netns/$bridge-$node"
    --mount="$run/namespaces/$node.mnt" --uts="$run/namespaces/$node.uts")
  (
    if [[ $part_cgroups == yes ]]; then
      enter_cgroups "$node"
      enter+=(--cgroup="$run/namespaces/$node.cgroup")
    fi
    spawn "$name" root "${enter[@]}" "$@"
  )
}

# gpu_major prints a device number that no driver has. Opening such a file
# fails with "no such device" if the cgroup allows the device, else with "not
# permitted".
gpu_major() {
  local major
  for major in {240..254}; do
    grep -qE "^ *$major " /proc/devices || break
  done
  printf '%s' "$major"
}

# make_gpu_files DIRECTORY makes fake GPUs for nodes that share the machine's
# /dev: plain files if device files are not allowed.
make_gpu_files() {
  local i
  install -d -m 0755 "$1"
  for i in 0 1 2 3; do
    mknod -m 0666 "$1/nvidia$i" c "$(gpu_major)" "$i" 2>/dev/null || install -m 0666 /dev/null "$1/nvidia$i"
  done
}

# node_processes NODE prints the ids of all processes of that node.
node_processes() {
  local freezer=/sys/fs/cgroup/freezer/$bridge/$1
  if [[ -d $freezer ]]; then
    find "$freezer" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  fi
  if [[ -e /run/netns/$bridge-$1 ]]; then
    ip netns pids "$bridge-$1"
  else
    # A node without namespaces: the environment of its jobs names the node and
    # this cluster.
    grep -lsz "^SLURMD_NODENAME=$1\$" /proc/[0-9]*/environ |
      xargs -r grep -lsz "^SLURM_CONF=$etc/" | cut -d/ -f3 || true
  fi
}

# kill_node NODE kills all processes of the node, frozen ones too. It succeeds
# when none is left.
kill_node() {
  local ids
  mapfile -t ids < <(node_processes "$1" | sort -u)
  ((${#ids[@]} > 0)) || return 0
  find "/sys/fs/cgroup/freezer/$bridge/$1" -name freezer.state -exec sh -c 'echo THAWED >"$1"' - {} \; 2>/dev/null || true
  kill -KILL "${ids[@]}" 2>/dev/null || true
  return 1
}

# forget_node NODE removes everything that make_node made and that still exists.
forget_node() {
  local node=$1 file controller
  rm -f "$run/namespaces/$node.furnished"
  poll 10 kill_node "$node" || die "processes of node $node cannot be ended: $(node_processes "$node" | tr '\n' ' ')"
  for file in mnt uts cgroup; do
    ! mountpoint -q "$run/namespaces/$node.$file" || umount "$run/namespaces/$node.$file"
    rm -f "$run/namespaces/$node.$file"
  done
  [[ ! -e /sys/class/net/$bridge-$node ]] || ip link delete "$bridge-$node"
  [[ ! -e /run/netns/$bridge-$node ]] || ip netns delete "$bridge-$node"
  for controller in $(controllers); do
    [[ ! -d /sys/fs/cgroup/$controller/$bridge/$node ]] || poll 5 remove_cgroup "/sys/fs/cgroup/$controller/$bridge/$node"
  done
}

# remove_cgroup PATH: the kernel keeps a cgroup for a moment after its last
# process has ended.
remove_cgroup() {
  find "$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
  [[ ! -d $1 ]]
}

remove_nodes() {
  local node controller
  for node in $nodes; do forget_node "$node"; done
  for controller in $(controllers); do
    [[ ! -d /sys/fs/cgroup/$controller/$bridge ]] || rmdir "/sys/fs/cgroup/$controller/$bridge"
  done
  [[ ! -e /sys/class/net/$bridge ]] || ip link delete "$bridge"
  ! mountpoint -q "$run/namespaces" || umount "$run/namespaces"
  # `ip netns add` mounts /run/netns on itself, and leaves that behind.
  while mountpoint -q /run/netns && [[ -z $(ls -A /run/netns) ]]; do umount /run/netns; done
}
