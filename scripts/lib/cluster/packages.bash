# shellcheck shell=bash
#
# Packages of another Debian, downloaded and not installed. The machine's packages, and the
# lists and the cache of its apt, stay as they are.

# fetch_packages RELEASE DIRECTORY PACKAGE…: download packages of a Debian and their
# dependencies, as if none were installed.
fetch_packages() {
  local release=$1 at=$2 mirror
  shift 2
  install -d -m 0755 "$at/lists/partial" "$at/archives/partial" "$at/parts"
  : >"$at/status"
  # The mirror that this machine has Debian's packages from.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Created-By: Packages' | head -n 1)
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
    "${mirror:-http://deb.debian.org/debian}" "$release" >"$at/sources.list"
  local options=(
    -o Dir::Etc::SourceList="$at/sources.list" -o Dir::Etc::SourceParts="$at/parts"
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts="$at/parts"
    -o Dir::State::Lists="$at/lists" -o Dir::State::Status="$at/status"
    -o Dir::Cache="$at" -o Dir::Cache::Archives="$at/archives"
    -o Acquire::Check-Valid-Until=false # a mirror of sid may be weeks behind; the signature counts
    -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none
  )
  apt-get "${options[@]}" update && apt-get "${options[@]}" --download-only --yes install "$@"
}
