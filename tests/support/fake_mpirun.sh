#!/bin/sh
# Stands for mpirun in tests of launch/local.sh: --bind-to none -np N, and one process for all of them.
shift 4
exec "$@"
