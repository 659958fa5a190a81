# shellcheck shell=bash
#
# The daemons, in the order of their dependencies. start_NAME does nothing if its
# daemon runs, so `up` both starts and repairs a cluster.

readonly control='kube-controller-manager kube-scheduler kube-apiserver etcd'

start_services() {
  local node
  make_network
  start_etcd
  spawn_apiserver # the slowest to come up; the nodes need not wait for it
  start_nodes
  for node in $nodes; do spawn_containerd "$node"; done
  for node in $nodes; do await_containerd "$node"; done
  poll 60 api_answers || failed kube-apiserver "does not answer"
  start_controllers
  for node in $nodes; do start_kubelet "$node"; done
  await_nodes
}

# make_network makes the bridge, with the address of the API server and the routes to pods.
make_network() {
  local node
  make_bridge
  ip address replace "$api/32" dev "$bridge"
  for node in $nodes; do ip route replace "$(pods_of "$node").0/24" via "$subnet.1${node#n}" dev "$bridge"; done
}

# Small and fast, and not safe against a power failure.
start_etcd() {
  needs etcd "$etcd_port" || return 0
  spawn etcd root "$tools/etcd" --data-dir="$dir/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls="https://127.0.0.1:$etcd_port" --advertise-client-urls="https://127.0.0.1:$etcd_port" \
    --listen-peer-urls="http://127.0.0.1:$etcd_peer_port" --initial-advertise-peer-urls="http://127.0.0.1:$etcd_peer_port" \
    --initial-cluster="default=http://127.0.0.1:$etcd_peer_port" \
    --cert-file="$etc/etcd.crt" --key-file="$etc/etcd.key" --client-cert-auth --trusted-ca-file="$etc/ca.crt"
}

spawn_apiserver() {
  needs kube-apiserver || return 0
  spawn kube-apiserver root "$tools/kube-apiserver" --bind-address="$api" --advertise-address="$api" --secure-port=443 \
    --etcd-servers="https://127.0.0.1:$etcd_port" --etcd-cafile="$etc/ca.crt" --etcd-certfile="$etc/etcd.crt" --etcd-keyfile="$etc/etcd.key" \
    --tls-cert-file="$etc/apiserver.crt" --tls-private-key-file="$etc/apiserver.key" \
    --client-ca-file="$etc/ca.crt" --token-auth-file="$etc/tokens.csv" --authorization-mode=Node,RBAC \
    --kubelet-client-certificate="$etc/kubelet-client.crt" --kubelet-client-key="$etc/kubelet-client.key" \
    --kubelet-preferred-address-types=InternalIP \
    --service-cluster-ip-range="$network.1.0/24" --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$etc/accounts.pub" --service-account-signing-key-file="$etc/accounts.key" \
    --enable-admission-plugins=NodeRestriction
}

kubectl() { "$tools/kubectl" --kubeconfig="$etc/admin.kubeconfig" --request-timeout=10s "$@"; }

api_answers() { kubectl get --raw=/readyz >/dev/null 2>&1; }

start_controllers() {
  if needs kube-controller-manager; then
    spawn kube-controller-manager root "$tools/kube-controller-manager" --kubeconfig="$etc/controller-manager.kubeconfig" \
      --leader-elect=false --secure-port=0 --use-service-account-credentials \
      --service-account-private-key-file="$etc/accounts.key" --root-ca-file="$etc/ca.crt" \
      --controllers='*,-nodeipam'
  fi
  if needs kube-scheduler; then
    spawn kube-scheduler root "$tools/kube-scheduler" --kubeconfig="$etc/scheduler.kubeconfig" --leader-elect=false --secure-port=0
  fi
}

# controllers prints the version 1 hierarchies, one line for each. Unlike Slurm, kubelet also needs
# the one without controllers, systemd.
controllers() { awk -F: '$2 != "" { sub(/^name=/, "", $2); print $2 }' /proc/self/cgroup; }

start_nodes() {
  local node id makers=()
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

on_containerd() { ctr --address "$dir/nodes/$1/containerd.sock" --namespace k8s.io "${@:2}"; }

spawn_containerd() {
  needs "containerd-$1" || return 0
  PATH=$(containerd_path "$1") spawn_inside "$1" "containerd-$1" containerd --config "$dir/nodes/$1/containerd.toml"
}

await_containerd() {
  poll 30 containerd_answers "$1" || failed "containerd-$1" "does not answer"
  [[ " ${started[*]} " != *" containerd-$1 "* ]] || on_containerd "$1" images import "$dir/pause.tar" >/dev/null
}

start_kubelet() {
  local node=$1 at=$dir/nodes/$1 devices='smarter-devices/fuse=100*/dev/fuse smarter-devices/net_tun=100*/dev/net/tun'
  if needs "kubelet-$node"; then
    spawn_inside "$node" "kubelet-$node" unshare --mount --propagation unchanged "$lib/apart" "$tools/kubelet" --config="$at/kubelet.yaml" \
      --kubeconfig="$etc/$node.kubeconfig" --hostname-override="$node" --node-ip="$subnet.1${node#n}" \
      --root-dir=/var/lib/kubelet --cert-dir="$at/kubelet/pki"
  fi
  if needs "devices-$node"; then
    ! has_gpus "$node" || devices+=' nvidia.com/gpu=/dev/nvidia0,/dev/nvidia1,/dev/nvidia2,/dev/nvidia3'
    # shellcheck disable=SC2086 # words
    spawn_inside "$node" "devices-$node" "$own_tools/devices" $devices
  fi
}

containerd_answers() { on_containerd "$1" version >/dev/null 2>&1; }

# await_nodes waits until pods can start: nodes are ready, and pods have their account.
await_nodes() {
  poll 60 pods_can_start || die "nodes do not come up: $(kubectl get nodes 2>&1)"
}

pods_can_start() {
  local name
  for name in $(daemons); do
    # A daemon that was started just now may have no record yet.
    [[ ! -e $run/records/$name ]] || is_running "$name" || failed "$name" "has ended"
  done
  nodes_are_ready && devices_are_there && account_is_there
}

daemons() {
  local node
  printf '%s\n' $control
  for node in $nodes; do printf '%s\n' "containerd-$node" "kubelet-$node" "devices-$node"; done
}

nodes_are_ready() {
  local ready
  # shellcheck disable=SC2086 # words
  ready=$(kubectl get nodes $nodes --output='jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' 2>/dev/null) || return 1
  [[ $(grep -c '^True$' <<<"$ready") == $(wc -w <<<"$nodes") ]]
}

devices_are_there() {
  [[ $(kubectl get node "$gpu_nodes" --output='jsonpath={.status.allocatable.nvidia\.com/gpu}' 2>/dev/null) == 4 ]]
}

account_is_there() { kubectl get serviceaccount default >/dev/null 2>&1; }

# unfinished_pods prints the pods that have not ended.
unfinished_pods() {
  is_running kube-apiserver || return 0
  kubectl get pods --all-namespaces --no-headers --field-selector=status.phase!=Succeeded,status.phase!=Failed 2>/dev/null || true
}

stop_all() {
  local node name
  for node in $nodes; do
    stop "kubelet-$node" &
    stop "devices-$node" &
  done
  for name in $control kwok; do stop "$name" & done
  wait
  for node in $nodes; do stop "containerd-$node" & done
  wait
}

daemons_table() {
  local name well=0
  printf '%-24s %8s  %s\n' DAEMON PID STATE
  for name in $(daemons); do
    if is_running "$name"; then
      printf '%-24s %8s  running\n' "$name" "$pid"
    else
      printf '%-24s %8s  stopped\n' "$name" -
      well=1
    fi
  done
  return "$well"
}

nodes_table() {
  kubectl get nodes 2>/dev/null || {
    printf 'nodes: the API server does not answer\n'
    return 1
  }
  nodes_are_ready
}
