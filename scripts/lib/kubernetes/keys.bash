# shellcheck shell=bash
#
# Keys, certificates and kubeconfigs. The API server has its own certificate from a
# certification authority of the cluster, and another one for calls to kubelets. Everybody
# else has a token.

make_keys() (
  umask 077
  cd "$etc"
  new_key ca.key
  openssl req -x509 -new -key ca.key -subj /CN=cl-slurm-test -days 3650 -out ca.crt 2>/dev/null
  certify apiserver /CN=kube-apiserver "subjectAltName=IP:$api,IP:127.0.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
  certify kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client extendedKeyUsage=clientAuth
  certify etcd /CN=etcd subjectAltName=IP:127.0.0.1
  new_key accounts.key
  openssl pkey -in accounts.key -pubout -out accounts.pub
  : >tokens.csv
  identify admin admin system:masters
  identify scheduler system:kube-scheduler ''
  identify controller-manager system:kube-controller-manager ''
  local node
  for node in $nodes; do identify "$node" "system:node:$node" system:nodes; done
)

new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

# certify NAME SUBJECT EXTENSION makes NAME.key and NAME.crt.
certify() {
  new_key "$1.key"
  openssl req -new -key "$1.key" -subj "$2" 2>/dev/null |
    openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile <(printf '%s\n' "$3") -out "$1.crt" 2>/dev/null
}

# identify FILE USER GROUP gives a user a token, and makes FILE.kubeconfig.
identify() {
  local token
  token=$(openssl rand -hex 16)
  printf '%s,%s,%s%s\n' "$token" "$2" "$1" "${3:+,\"$3\"}" >>tokens.csv
  cat >"$1.kubeconfig" <<CONF
apiVersion: v1
kind: Config
clusters: [{name: cl-slurm-test, cluster: {server: "https://$api", certificate-authority: $etc/ca.crt}}]
users: [{name: "$2", user: {token: $token}}]
contexts: [{name: cl-slurm-test, context: {cluster: cl-slurm-test, user: "$2"}}]
current-context: cl-slurm-test
CONF
}
