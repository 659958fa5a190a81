#!/bin/sh
# dpkg and rpm run this after an installation or an upgrade. It enables and starts nothing.
set -e
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers cl-slurm.conf
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
