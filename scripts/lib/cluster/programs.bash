# shellcheck shell=bash
#
# The Slurm of another Debian, in a directory of its own: $base/slurm/trixie.
#
#   root     the packages of Slurm and all that they depend on, C library included,
#            unpacked and not installed
#   bin      links to Slurm's commands in there, and slurmd
#   sbin     links to Slurm's daemons in there
#   plugins  a link to Slurm's plugins in there
#
# Slurm's programs are changed to load the C library and all others from root.
# Nothing else is: they run on this machine's file system, as the jobs do. What has
# a path compiled in is this machine's: a job of --export=NONE gets its user's
# environment from the installed slurmstepd. The directory is made once. Remove it
# for newer packages.

# fetch_slurm makes the directory. The machine's packages, and the lists and the
# cache of its apt, stay as they are.
fetch_slurm() {
  [[ ! -d $programs ]] || return 0
  local new=$programs.new package
  say "fetching the Slurm of Debian $slurm"
  rm -rf --one-file-system -- "$new"
  install -d -m 0755 "$base/slurm" "$new" "$new/root" "$new/bin" "$new/sbin"
  fetch_packages "$slurm" "$new/apt" slurmctld slurmd slurmdbd slurm-client patchelf >"$new/apt.log" 2>&1 ||
    die "the packages of Debian $slurm could not be fetched: $(tail -n 3 "$new/apt.log")"
  for package in "$new"/apt/archives/*.deb; do dpkg-deb -x "$package" "$new/root"; done
  for package in "$new"/apt/archives/slurm{ctld,d,dbd,-client}_*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -t | sed -n 's|^\./\(usr/s\?bin/.\)|\1|p'
  done >"$new/programs"
  rm -rf "$new/apt" "$new/root/usr/share"
  link_programs "$new"
  mv -T "$new" "$programs"
}

# link_programs DIRECTORY changes Slurm's programs, and links them in its bin. They
# have the paths that they will have when it is complete.
link_programs() {
  local new=$1 loader library path name
  loader=$(cd "$new/root" && printf '%s\n' usr/lib/*-linux-gnu/ld-linux*.so.*)
  library=${loader%/*}
  while read -r path; do
    "$new/root/$loader" --library-path "$new/root/$library" "$new/root/usr/bin/patchelf" \
      --set-interpreter "$programs/root/$loader" \
      --force-rpath --set-rpath "$programs/root/$library/slurm-wlm:$programs/root/$library" "$new/root/$path"
    name=${path##*/} # Debian's alternatives end in -wlm; some daemons go by their name
    ln -s "$programs/root/$path" "$new/$(basename "${path%/*}")/${name%-wlm}"
  done <"$new/programs"
  ln -s "$programs/root/$library/slurm-wlm" "$new/plugins"

  # slurmd has the path of slurmstepd compiled in: that of the installed Slurm.
  printf '#!/bin/sh\nexec %q -d %q "$@"\n' "$programs/sbin/slurmd" "$programs/sbin/slurmstepd" >"$new/bin/slurmd"
  chmod 0755 "$new/bin/slurmd"
}
