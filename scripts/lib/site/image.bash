# shellcheck shell=bash
#
# The root file system of all machines: Debian's packages, which are fetched once for
# a list of packages, and the files below root/. Guests write to a copy on write.

readonly image=$home/image

# packages are those of every machine. Each uses those of its role.
readonly packages='systemd systemd-sysv dbus dbus-user-session libpam-systemd libnss-systemd kmod
  iproute2 procps sudo netbase ca-certificates openssh-server openssh-client
  nfs-kernel-server nfs-common rpcbind
  munge slurmctld slurmd slurmdbd slurm-client mariadb-server
  squashfuse squashfs-tools fuse3 bubblewrap uidmap slirp4netns passt xz-utils busybox-static acl nfs4-acl-tools'

# masked are units that a guest does not need, and that cost it seconds each.
readonly masked='systemd-udevd.service systemd-udev-trigger.service systemd-udev-settle.service
  systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-networkd.service
  systemd-sysusers.service systemd-random-seed.service systemd-tmpfiles-setup-dev.service
  systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-binfmt.service
  modprobe@.service getty@.service getty.target console-getty.service
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
  slurmctld.service slurmdbd.service mariadb.service nfs-server.service nfs-blkmap.service'

# find_base sets recipe, the fingerprint of the root file system, and root, the directory of
# its products. Comments in the scripts do not count.
find_base() {
  recipe=$(
    {
      debian_fingerprint
      kernel_fingerprint
      printf '%s\n' "$masked"
      find "$lib/root" -type f -printf '%P %m\n' -exec cat {} + | sort
      declare -f furnish_root make_base
    } | sha256sum | cut -c1-12
  )
  root=$image/$recipe
}

debian_fingerprint() { { printf '%s\n' "$packages"; declare -f fetch_debian; } | sha256sum | cut -c1-12; }

kernel_fingerprint() { declare -f fetch_kernel | sha256sum | cut -c1-12; }

# make_base makes the root file system, unless it is there: as a directory for the controller,
# and as a disk for guests. It appears in one step, and replaces those of other recipes.
make_base() {
  local made=$root.made debian kernel
  [[ ! -e $root ]] || return 0
  install -d -m 0755 "$image"
  debian=$image/debian-$(debian_fingerprint).tar kernel=$image/kernel-$(kernel_fingerprint).tar
  if [[ ! -e $debian || ! -e $kernel ]]; then
    say "fetching Debian's packages (a minute, once)"
    [[ -e $debian ]] || fetch_debian "$debian"
    [[ -e $kernel ]] || fetch_kernel "$kernel"
  fi
  say "making the root file system (half a minute, once)"
  rm -rf --one-file-system -- "$made"
  install -d -m 0755 "$made" "$made/root" "$made/kernel"
  tar -x -C "$made/root" -f "$debian" --numeric-owner --xattrs --xattrs-include='*'
  tar -x -C "$made/kernel" -f "$kernel" --exclude='./dev/*'
  furnish_kernel "$made/kernel"
  furnish_root "$made/root" "$made"
  truncate -s 4G "$made/disk"
  mkfs.ext4 -q -L site -E lazy_itable_init=1 -d "$made/root" "$made/disk"
  find "$image" -mindepth 1 -maxdepth 1 ! -path "$made" ! -path "$debian" ! -path "$kernel" \
    -exec rm -rf --one-file-system -- {} +
  mv -T -- "$made" "$root"
}

# fetch_debian FILE makes a tar file of a Debian with the packages.
fetch_debian() {
  # shellcheck disable=SC2016 # mmdebstrap expands it
  mmdebstrap --quiet --mode=root --variant=apt --components=main --format=tar \
    --aptopt='Apt::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
    --include="$(tr -s ' \n' ',' <<<"$packages" | sed 's/,$//')" \
    --customize-hook='rm "$1/etc/resolv.conf" "$1/etc/hostname"' \
    bookworm "$1.part"
  mv -T -- "$1.part" "$1"
}

# fetch_kernel FILE makes a tar file of the guests' kernel, with the C library that it needs.
# It is sid's: those of bookworm and trixie panic on processors with AMX, and only newer
# ones know seccomp=, which spares each system call of a guest two stops by ptrace.
fetch_kernel() {
  mmdebstrap --quiet --mode=root --variant=extract --components=main --format=tar \
    --aptopt='Acquire::Check-Valid-Until "false"' \
    --include=user-mode-linux sid "$1.part"
  mv -T -- "$1.part" "$1"
}

# furnish_kernel DIRECTORY makes it one in which that kernel runs as a program.
furnish_kernel() {
  ln -sfn usr/lib "$1/lib"
  ln -sfn usr/lib64 "$1/lib64"
  install -d -m 0755 "$1/proc" "$1/dev" "$1$home"
}

# furnish_root ROOT DIRECTORY turns a Debian into a machine of the site; it adds the modules of
# the kernel in DIRECTORY, too. DIRECTORY gets the files of an ssh client.
furnish_root() {
  local unit id version
  cp -r --preserve=mode -- "$lib/root/." "$1/"
  chown -R root:root "$1/etc/systemd/system" "$1/usr/local/sbin"
  : >"$1/etc/machine-id"
  for unit in $masked; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done
  chroot "$1" systemctl --quiet enable site-machine.service
  chroot "$1" useradd --uid 2000 --no-create-home --home-dir /home/researcher --shell /bin/bash researcher
  install -d -m 0755 "$1/srv/home" "$1/srv/shared" "$1/shared"
  chroot "$1" install -d -m 0700 -o researcher -g researcher /srv/home/researcher
  chroot "$1" install -d -m 0755 -o researcher -g researcher /srv/shared/researcher
  chroot "$1" install -d -m 0755 -o slurm -g slurm /var/spool/slurmctld
  chroot "$1" chown slurm:slurm /etc/slurm/slurmdbd.conf
  chmod 0600 "$1/etc/slurm/slurmdbd.conf"

  ssh-keygen -q -t ed25519 -N '' -C site -f "$2/ssh_key"
  # Not in homes: those are on NFS, where root may not read them.
  for id in root researcher; do install -D -m 0644 "$2/ssh_key.pub" "$1/etc/ssh/keys/$id"; done
  install -m 0600 "$2/ssh_key" "$1/etc/ssh/keys/id"
  printf 'site %s\n' "$(cut -d' ' -f1,2 "$1/etc/ssh/ssh_host_ed25519_key.pub")" >"$2/known_hosts"

  install -d -m 0755 "$1/usr/lib/modules"
  mv -t "$1/usr/lib/modules" "$2"/kernel/usr/lib/uml/modules/*
  version=$(ls "$1/usr/lib/modules")
  chroot "$1" depmod "$version"
}
