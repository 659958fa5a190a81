#!/bin/sh
# The older name of CodaLab's worker: worker.sh --server URL [--password FILE] [--slots N] …
# It starts cl-worker, which has the same options, from this script's directory or else from PATH.
dir=$(dirname -- "$0")
if [ -x "$dir/cl-worker" ]; then
  exec "$dir/cl-worker" "$@"
fi
exec cl-worker "$@"
