# shellcheck shell=bash
#
# Made-up nodes, for tests with many pods: kwok plays their kubelets. Pods there start, and run
# nothing. The nodes have a taint, so that only pods go there that tolerate it:
#
#   tolerations: [{key: kwok.x-k8s.io/node, operator: Exists}]
#
# kwok has a module of its own, because its dependencies would change those of Kubernetes.

readonly kwok_stages='pod/fast node/fast node/heartbeat-with-lease'

kwok_tools=$base/tools/kwok-$(cat "$lib/kwok/go.mod" "$lib/kwok/go.sum" | hash_of)
readonly kwok_tools

build_kwok() {
  local module stage file
  [[ -d $kwok_tools ]] || say "building kwok (two minutes, once for this machine)"
  build_into "$kwok_tools" "$lib/kwok" tool
  [[ ! -e $kwok_tools/stages.yaml ]] || return 0
  module=$(cd "$lib/kwok" && PATH=$caller_path go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)
  for stage in $kwok_stages; do
    for file in "$module/kustomize/stage/$stage"/[!k]*.yaml; do # not kustomization.yaml
      printf -- '---\n'
      cat "$file"
    done
  done >"$kwok_tools/stages.new"
  mv "$kwok_tools/stages.new" "$kwok_tools/stages.yaml"
}

# set_fake_nodes COUNT makes the cluster have so many made-up nodes.
set_fake_nodes() {
  local count=$1 i
  kubectl get nodes --selector=type=kwok --output=name | awk -F- -v count="$count" '$2 >= count' |
    xargs --no-run-if-empty "$tools/kubectl" --kubeconfig="$etc/admin.kubeconfig" delete >/dev/null
  if ((count == 0)); then
    stop kwok
    return
  fi
  started=()
  ! needs kwok || spawn kwok root "$kwok_tools/kwok" --kubeconfig="$etc/admin.kubeconfig" --config="$kwok_tools/stages.yaml" \
    --manage-all-nodes=false --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-lease-duration-seconds=40
  for ((i = 0; i < count; i++)); do fake_node "$i"; done | kubectl apply --filename=- >/dev/null
  poll 60 fake_nodes_are_ready "$count" || failed kwok "does not make the nodes ready"
}

fake_node() {
  local resources='{"cpu": "64", "memory": "256Gi", "pods": "200", "nvidia.com/gpu": "8"}'
  cat <<NODE
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fake-$1", "labels": {"type": "kwok"}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
 "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
 "status": {"capacity": $resources, "allocatable": $resources}}
NODE
}

fake_nodes_are_ready() { [[ $(kubectl get nodes --selector=type=kwok --no-headers | grep -c ' Ready ') == "$1" ]]; }
