#!/bin/sh
# dpkg and rpm run this before a removal and before an upgrade. A running server goes on
# during an upgrade.
set -e
case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl --no-reload disable --now cl-server.service
    fi
    ;;
esac
