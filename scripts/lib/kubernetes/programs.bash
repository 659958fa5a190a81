# shellcheck shell=bash
#
# The programs. Kubernetes and etcd are built once for a machine and a go.mod, which takes
# about eight minutes of one processor. Our own small ones are built once for their text.
#
# Debian 12's containerd, 1.6, gives pods no user namespaces. The other nodes than n1 therefore have that of
# Debian sid, in a directory of its own, changed to load its libraries from there. It is fetched once.
# Remove the directory for newer packages.

readonly kubernetes_version=v1.36.3

hash_of() { sha256sum | cut -c1-12; }

tools=$base/tools/kubernetes-$(cat "$lib/go.mod" "$lib/go.sum" | hash_of)
own_tools=$base/tools/kubernetes-own-$(cat "$lib/go.mod" "$lib"/*/*.go | hash_of)
readonly tools own_tools newer=$base/containerd/sid

build_programs() {
  [[ -d $tools ]] || say "building Kubernetes $kubernetes_version (some minutes, once for this machine)"
  build_into "$tools" "$lib" tool
  build_into "$own_tools" "$lib" ./...
}

# build_into DIRECTORY MODULE PACKAGES builds programs, unless they are there. They appear at once.
build_into() {
  local to=$1 new
  [[ ! -d $to ]] || return 0
  install -d -m 0755 "$base/tools"
  new=$(mktemp -d "$to.XXXXXX")
  chmod 0755 "$new"
  if ! go_install "$new" "$2" "$3"; then
    rm -rf "$new"
    die "the programs could not be built"
  fi
  [[ ! -e $new/server ]] || mv "$new/server" "$new/etcd" # go.etcd.io/etcd/server/v3
  mv -T "$new" "$to"
}

go_install() {
  local PATH=$caller_path
  command -v go >/dev/null || die "needs Go to build Kubernetes; 'go' is not in the PATH"
  (
    cd "$2"
    GOBIN=$1 CGO_ENABLED=0 GOFLAGS=-trimpath nice -n 10 \
      go install -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes_version" "$3"
  )
}

# fetch_containerd makes $newer: root has the packages, unpacked, and bin the programs.
fetch_containerd() {
  [[ ! -d $newer ]] || return 0
  local new=$newer.new package loader name
  say "fetching the containerd of Debian sid"
  rm -rf --one-file-system -- "$new"
  install -d -m 0755 "$base/containerd" "$new" "$new/root" "$new/bin"
  if ! fetch_packages sid "$new/apt" containerd runc patchelf >"$new/apt.log" 2>&1; then
    say "it could not be fetched; n2 has the installed one: $(tail -n 1 "$new/apt.log")"
    rm -rf --one-file-system -- "$new"
    return 0
  fi
  for package in "$new"/apt/archives/*.deb; do dpkg-deb -x "$package" "$new/root"; done
  rm -rf "$new/apt" "$new/root/usr/share"
  loader=$(cd "$new/root" && printf '%s\n' usr/lib/*-linux-gnu/ld-linux*.so.*)
  for name in bin/containerd bin/containerd-shim-runc-v2 bin/ctr sbin/runc; do
    "$new/root/$loader" --library-path "$new/root/${loader%/*}" "$new/root/usr/bin/patchelf" \
      --set-interpreter "$newer/root/$loader" --force-rpath --set-rpath "$newer/root/${loader%/*}" "$new/root/usr/$name"
    ln -s "$newer/root/usr/$name" "$new/bin/${name##*/}"
  done
  mv -T "$new" "$newer"
}

# containerd_path NODE prints the PATH of its containerd.
containerd_path() {
  if [[ $1 != n1 && -d $newer ]]; then
    printf '%s:%s' "$newer/bin" "$PATH"
  else
    printf '%s' "$PATH"
  fi
}

# make_pause_image ARCHIVE makes an image, as docker save does, with the one program pause.
make_pause_image() {
  local new layer
  new=$(mktemp -d)
  tar -C "$own_tools" --owner=0 --group=0 --numeric-owner -cf "$new/layer.tar" pause
  layer=$(sha256sum "$new/layer.tar" | cut -d' ' -f1)
  printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/pause"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$(dpkg --print-architecture)" "$layer" >"$new/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$pause_image" >"$new/manifest.json"
  tar -C "$new" -cf "$1" manifest.json config.json layer.tar
  rm -r "$new"
}
