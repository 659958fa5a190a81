#!/bin/sh
# Installs cl, the researcher's command of cl-slurm, for one user, on Linux and macOS. It needs no root, curl or wget, tar and
# gzip, and a program for SHA-256. It changes one file, DIR/cl, and only when the download has the digest in SHA256SUMS.
#
#   curl -fsSL ADDRESS/install.sh | sh
#   sh install.sh [--from ADDRESS] [--bin DIR] [--version v1.2.3]
#
# Another call installs another version, or the same one again. To remove cl, remove DIR/cl.
set -eu

fail() {
	echo "install.sh: $1" >&2
	exit 1
}

fetch() { # ADDRESS FILE
	if command -v curl >/dev/null 2>&1; then
		curl -fsSL -o "$2" "$1"
	elif command -v wget >/dev/null 2>&1; then
		wget -q -O "$2" "$1"
	else
		fail "neither curl nor wget is there: install one of them"
	fi || fail "$1 cannot be downloaded: is that the address of a release, and does your network lead there?"
}

digest() { # FILE
	if command -v sha256sum >/dev/null 2>&1; then
		sha256sum "$1"
	elif command -v shasum >/dev/null 2>&1; then
		shasum -a 256 "$1"
	elif command -v openssl >/dev/null 2>&1; then
		openssl dgst -sha256 -r "$1"
	else
		fail "no program for SHA-256 is there, so the download cannot be checked: install sha256sum, shasum or openssl"
	fi | cut -d ' ' -f 1
}

platform() {
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	*) fail "there is no cl for $(uname -s): on Windows, scoop installs it" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there is no cl for processors of the kind $(uname -m)" ;;
	esac
}

# All of the work is in a function that the last line calls: of a script that was cut off on its way nothing runs.
main() {
	from='@URL@' dir='' wanted=''
	while [ $# -gt 0 ]; do
		case $1 in
		--from | --bin | --version)
			[ $# -gt 1 ] || fail "$1 needs a value"
			case $1 in
			--from) from=${2%/} ;;
			--bin) dir=$2 ;;
			--version) wanted=${2#v} ;;
			esac
			shift 2
			;;
		*) fail "there is no option $1; there are --from ADDRESS, --bin DIR and --version v1.2.3" ;;
		esac
	done
	case $from in @*) from= ;; esac # the script of the sources, of no release
	[ -n "$from" ] || fail "--from names the address of a release's directory"
	if [ -z "$dir" ]; then
		[ -n "${HOME:-}" ] || fail "HOME is not set: --bin names the directory for cl"
		dir=$HOME/.local/bin
	fi
	platform
	tmp=$(mktemp -d) || fail "no temporary directory can be made"
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 1' HUP INT TERM
	fetch "$from/SHA256SUMS" "$tmp/SHA256SUMS"
	archive=$(sed -n "s/^[0-9a-f]\{64\}  \(cl-slurm-client_[^/ ]*_${system}_$arch\.tar\.gz\)\$/\1/p" "$tmp/SHA256SUMS")
	case $archive in
	'') fail "$from has no cl for $system on $arch" ;;
	*"
"*) fail "$from has several versions of cl: SHA256SUMS is of more than one release" ;;
	esac
	version=${archive#cl-slurm-client_}
	version=${version%"_${system}_$arch.tar.gz"}
	[ -z "$wanted" ] || [ "$wanted" = "$version" ] || fail "$from has version v$version, not v$wanted: nothing is installed"
	fetch "$from/$archive" "$tmp/$archive"
	sum=$(digest "$tmp/$archive")
	[ -n "$sum" ] || exit 1
	grep -q "^$sum  $archive\$" "$tmp/SHA256SUMS" ||
		fail "$archive has another digest than SHA256SUMS says: the download is broken, or somebody has changed it. Nothing is installed"
	tar -xzf "$tmp/$archive" -C "$tmp" "${archive%.tar.gz}/bin/cl" || fail "$archive cannot be unpacked"
	mkdir -p "$dir" || fail "$dir cannot be made: --bin names another directory"
	before=
	if [ -x "$dir/cl" ]; then before=$("$dir/cl" --version 2>/dev/null) || before=; fi
	if ! cp "$tmp/${archive%.tar.gz}/bin/cl" "$dir/.cl.new" 2>/dev/null || ! mv -f "$dir/.cl.new" "$dir/cl" 2>/dev/null; then
		rm -f "$dir/.cl.new"
		fail "$dir cannot be written: --bin names another directory"
	fi
	after=$("$dir/cl" --version) || fail "$dir/cl is installed, and does not run here"
	echo "$dir/cl is now: $after"
	if [ -n "$before" ] && [ "$before" != "$after" ]; then echo "It was before: $before"; fi
	case :${PATH:-}: in
	*":$dir:"*) ;;
	*) echo "$dir is not in PATH: add this line to your shell's file (~/.profile, ~/.zshrc): export PATH=\"$dir:\$PATH\"" ;;
	esac
	echo "Next: cl work http://SERVER:2900::, cl doctor, and cl completion --install for your shell."
}

main "$@"
