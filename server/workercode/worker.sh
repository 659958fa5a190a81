#!/bin/sh
# Runs the cl-worker beside this script, with the script's arguments. CodaLab's
# worker.sh ran "python main.py" here, again after each upgrade of itself;
# cl-worker is one program, and does not upgrade itself.
exec "$(dirname "$0")/cl-worker" "$@"
