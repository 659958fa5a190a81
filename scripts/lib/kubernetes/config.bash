# shellcheck shell=bash
#
# The parts of the cluster: paths, addresses, and every configuration file.

readonly base=/var/tmp/cl-slurm
readonly dir=$base/kubernetes
readonly etc=$dir/etc
readonly run=$dir/run
readonly log=$dir/log

# The bridge's name is also the beginning of the names of the cluster's interfaces, and
# the name of its cgroups.
readonly bridge=clkube network=10.79 subnet=10.79.0
readonly nodes='n1 n2' gpu_nodes='n2'
# The API server has the first address of the services, which is that of "kubernetes".
readonly api=$network.1.1
readonly etcd_port=17179 etcd_peer_port=17180

readonly pause_image=cl-slurm.example/pause:1

readonly caller_path=$PATH
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

# pods_of NODE prints the first three bytes of the addresses of its pods.
pods_of() { printf '%s.1%s' "$network" "${1#n}"; }

has_gpus() { [[ " $gpu_nodes " == *" $1 "* ]]; }

require_programs() {
  local program
  for program in containerd ctr runc openssl ip /usr/lib/cni/bridge; do
    command -v "$program" >/dev/null || die "$program is not installed; run 'scripts/setup kubernetes' first"
  done
  namespaces_work || die "this machine lets root make no network and mount namespaces, which the nodes need"
  cgroups_work || die "this machine lacks controllers of cgroup v1, which the nodes need"
}

# nodes.bash reads these two.
# shellcheck disable=SC2034
readonly part_namespaces=yes part_cgroups=yes

namespaces_work() {
  unshare --net --mount --uts sh -c '
    ip link add probe type bridge && ip link add probe0 type veth peer name probe1
    mount -t tmpfs probe /mnt && mknod /mnt/probe c 1 3' 2>/dev/null
}

# cgroups_work checks for the version 1 controllers that kubelet and runc use.
cgroups_work() {
  local controller
  for controller in cpu cpuacct cpuset memory devices freezer pids; do
    [[ -w /sys/fs/cgroup/$controller/tasks ]] || return 1
  done
  unshare --cgroup true 2>/dev/null
}

# fingerprint prints the same for equal clusters: equal programs, configuration files, and
# scripts that set up nodes. Comments in the scripts do not count.
fingerprint() {
  local node
  {
    printf '%s\n' "$tools" "$own_tools"
    for node in $nodes; do
      containerd_config "$node"
      containerd_path "$node"
      cni_config "$node"
      kubelet_config "$node"
    done
    grep -hv '^ *#' "$lib/furnish" "$lib/apart" "$lib/services.bash" "$lib/keys.bash"
    declare -f make_node enter_cgroups spawn spawn_inside
  } | sha256sum | cut -c1-64
}

# write_configuration makes the directory tree. It writes the fingerprint last:
# a tree without one is incomplete, and is removed.
write_configuration() {
  local node
  rm -rf --one-file-system -- "$dir"
  install -d -m 0755 "$dir" "$etc" "$run" "$log"
  install -d -m 0700 "$run/records" "$dir/etcd" "$dir/nodes"
  for node in $nodes; do
    install -d -m 0755 "$dir/nodes/$node"/{kubelet,pods,containerd,cni}
    containerd_config "$node" >"$dir/nodes/$node/containerd.toml"
    cni_config "$node" >"$dir/nodes/$node/cni/10-bridge.conflist"
    kubelet_config "$node" >"$dir/nodes/$node/kubelet.yaml"
  done
  make_keys
  make_pause_image "$dir/pause.tar"
  printf '%s\n' "$1" >"$etc/fingerprint"
}

# This machine may not lower the oom_score_adj of a process, and has no AppArmor.
containerd_config() {
  local at=$dir/nodes/$1
  cat <<CONF
version = 2
root = "$at/containerd"
state = "/run/containerd"
[grpc]
  address = "$at/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "$at/cni"
CONF
}

# Packets between pods of different nodes, and between pods and the API server, are routed.
cni_config() {
  cat <<CONF
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(pods_of "$1").0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
CONF
}

# Images are never collected, because they cannot be pulled again, and a full disk is none of the
# cluster's. Intervals are small, for tests.
kubelet_config() {
  local at=$dir/nodes/$1
  cat <<CONF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $subnet.1${1#n}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $etc/ca.crt}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$at/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
resolvConf: ""
podLogsDir: $at/pods
volumePluginDir: $at/plugins
serializeImagePulls: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%, imagefs.inodesFree: 1%}
nodeStatusUpdateFrequency: 1s
nodeStatusReportFrequency: 5m
CONF
}
