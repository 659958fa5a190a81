# shellcheck shell=bash
#
# The network: a bridge in a namespace of its own, and a tap for each guest.

make_network() {
  local guest tap
  [[ -e /run/netns/$netns ]] || ip netns add "$netns"
  inside ip link set lo up
  if ! inside ip link show "$bridge" >/dev/null 2>&1; then
    inside ip link add name "$bridge" type bridge
    inside ip address add "$subnet.1/24" dev "$bridge"
  fi
  inside ip link set "$bridge" up
  # The guests' gateway: it knows no other network, and says so.
  inside sysctl -q -w net.ipv4.ip_forward=1
  for guest in $guests; do
    tap=tap-$guest
    inside ip link show "$tap" >/dev/null 2>&1 || inside ip tuntap add "$tap" mode tap
    plug_in "$guest"
    inside ip link set "$tap" up
  done
}

# inside PROGRAM…: run it in the site's network.
inside() { ip netns exec "$netns" "$@"; }

# unplug GUEST disconnects a guest. Its tap stays up: if a tap goes down, User-mode
# Linux loses the interface for ever.
unplug() { inside ip link set "tap-$1" nomaster; }

plug_in() { inside ip link set "tap-$1" master "$bridge"; }

remove_network() {
  # The taps and the bridge are gone with the namespace.
  [[ ! -e /run/netns/$netns ]] || ip netns delete "$netns"
  # `ip netns add` mounts /run/netns on itself, and leaves that behind.
  while mountpoint -q /run/netns && [[ -z $(ls -A /run/netns) ]]; do umount /run/netns; done
}
