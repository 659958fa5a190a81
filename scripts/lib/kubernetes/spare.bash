# shellcheck shell=bash
#
# The spare node, n3: a real one, which a test may cut off and remove. Its kubelet gives each pod
# the runtime's filter of system calls (seccompDefault) and bounds the processes of a pod
# (podPidsLimit), as the nodes of some sites do. It has no device plugin, and a taint, so that only
# pods go there that tolerate it:
#
#   tolerations: [{key: cl-slurm/spare, operator: Exists}]
#
# Its kubelet has a certificate, because the API server reads its file of tokens only once.

readonly spare=n3

spare_up() {
  local at=$dir/nodes/$spare
  started=()
  [[ -e $etc/$spare.kubeconfig ]] || furnish_spare "$at"
  ip route replace "$(pods_of "$spare").0/24" via "$subnet.1${spare#n}" dev "$bridge"
  node_exists "$spare" || make_node "$spare"
  ip link set "$bridge-$spare" up
  spawn_containerd "$spare"
  await_containerd "$spare"
  if needs "kubelet-$spare"; then
    spawn_inside "$spare" "kubelet-$spare" unshare --mount --propagation unchanged "$lib/apart" "$tools/kubelet" --config="$at/kubelet.yaml" \
      --kubeconfig="$etc/$spare.kubeconfig" --hostname-override="$spare" --node-ip="$subnet.1${spare#n}" \
      --root-dir=/var/lib/kubelet --cert-dir="$at/kubelet/pki"
  fi
  poll 60 spare_is_ready || failed "kubelet-$spare" "does not make its node ready"
}

# furnish_spare DIRECTORY makes the files of the node. It makes the kubeconfig last.
furnish_spare() {
  install -d -m 0755 "$1"/{kubelet,pods,containerd,cni}
  containerd_config "$spare" >"$1/containerd.toml"
  cni_config "$spare" >"$1/cni/10-bridge.conflist"
  {
    kubelet_config "$spare"
    printf 'seccompDefault: true\npodPidsLimit: 500\nregisterWithTaints: [{key: cl-slurm/spare, effect: NoSchedule}]\n'
  } >"$1/kubelet.yaml"
  (
    umask 077
    cd "$etc"
    certify "$spare" "/O=system:nodes/CN=system:node:$spare" extendedKeyUsage=clientAuth
    sed "s|user: {token: .*|user: {client-certificate: $etc/$spare.crt, client-key: $etc/$spare.key}}]|" n1.kubeconfig >"$spare.new"
    mv "$spare.new" "$spare.kubeconfig"
  )
}

spare_is_ready() {
  [[ $(kubectl get node "$spare" --output='jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null) == True ]]
}

# spare_cut cuts the node off the network. Its pods run on, and `spare up` mends it.
spare_cut() { ip link set "$bridge-$spare" down; }

# spare_down removes the node at once, as a machine that is lost for good, and its object: the
# cluster then removes its pods.
spare_down() {
  forget_node "$spare"
  rm -rf --one-file-system -- "$dir/nodes/$spare" "$run/records/containerd-$spare" "$run/records/kubelet-$spare" "$etc/$spare".*
  ! is_running kube-apiserver || kubectl delete node "$spare" --ignore-not-found >/dev/null
}
