#!/bin/sh
# dpkg and rpm run this after a removal, a purge or an upgrade. The server's data in
# /var/lib/cl-server and the account cl-server stay.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
