#!/usr/bin/env bash
# A small SLURM cluster on this machine: munged, slurmctld and several slurmd, each a node with a host name, shared
# memory and processes of its own; no systemd, nothing in /etc, no accounting, ports that are free. Needs root and
# Debian's slurmctld, slurmd, slurm-client and munge.
#
#   slurm.sh with N COMMAND...  makes nodes n1 to nN, runs COMMAND, which finds them with sbatch and srun, removes them
#
# Piece by piece, for the cluster that AB_SLURM names, "ab-" and the process that it belongs to:
#
#   slurm.sh check              fails if this machine cannot make a cluster, and says why
#   slurm.sh up N               makes it, and waits until its nodes are idle; clusters of processes that are gone are
#                               removed. AB_SLURM_CPUS (2) is what each node claims to have.
#   slurm.sh run COMMAND...     runs COMMAND with what sbatch and the like need
#   slurm.sh crash NODE         as when its power goes: all that runs there is killed at once, nobody is told
#   slurm.sh revive NODE        it comes up again
#   slurm.sh busy               the processes of jobs, on all nodes
#   slurm.sh down               cancels what runs, ends the daemons, removes the folder
#
# What differs from a cluster of machines, to make tests short: a requeued job waits 5 s (cred_expire), not 2 minutes;
# a node is given up after 10 s without an answer; a job has 8 s to end (KillWait, as 2 cores serve all nodes).
set -euo pipefail
self=$(realpath "$0")
export PATH=$PATH:/usr/sbin:/sbin
export AB_SLURM=${AB_SLURM:-ab-$$}
folder=/run/$AB_SLURM-slurm
export SLURM_CONF=$folder/slurm.conf

die() {
  echo "slurm.sh: $1" >&2
  exit 2
}

check() {
  local tool
  [ "$(id -u)" = 0 ] || die "only root can make a cluster"
  for tool in munged slurmctld slurmd sbatch unshare mpirun ss; do
    command -v "$tool" > /dev/null || die "$tool is not installed (launch/install.sh slurm)"
  done
  unshare --uts --mount --pid --fork --mount-proc mount -t tmpfs tmpfs /dev/shm 2> /dev/null ||
    die "this machine does not let root make host names, mounts and processes of their own"
}

nodes() { sed -n 's/^NodeName=\([^ ]*\).*/\1/p' "$SLURM_CONF"; }

# So many neighbouring ports that nobody listens on.
free_ports() {
  local first taken
  taken=$(ss -Hltn | awk '{sub(/.*:/, "", $4); print $4}')
  for ((first = 20000 + $$ % 800 * 12; ; first += 12)); do
    [ "$first" -lt 32000 ] || first=20000
    seq "$first" $((first + $1 - 1)) | grep -qxFf <(echo "$taken") || break
  done
  echo "$first"
}

write_conf() {
  local port host i
  port=$(free_ports $(($1 + 1)))
  host=$(hostname -s)
  cat > "$SLURM_CONF" << CONF
ClusterName=mini
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.sock,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
TmpFS=$folder/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=2,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=8
SlurmdTimeout=10
MessageTimeout=10
ReturnToService=2
MinJobAge=600
PropagateResourceLimits=NONE
CONF
  echo "127.0.0.1 localhost $host" > "$folder/hosts"
  for ((i = 1; i <= $1; i++)); do
    echo "NodeName=n$i NodeHostname=n$i NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=${AB_SLURM_CPUS:-2} State=UNKNOWN"
    echo "127.0.0.1 n$i" >> "$folder/hosts"
  done >> "$SLURM_CONF"
  # Jobs of `urgent` take the nodes of those in `main`, which are told so a while before they are requeued.
  cat >> "$SLURM_CONF" << CONF
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
CONF
}

# Daemons know nothing of who has started them, and outlive it.
daemon() { env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF" setsid "$@" < /dev/null > /dev/null 2>&1 3>&- & }

# TmpFS differs between nodes as srun --mpi=pmix makes a folder there that is named only after the step; shared memory
# and host name do as Open MPI's segments would collide. The shell that is process 1 of the node takes its orphans.
start_node() {
  mkdir -p "$folder/spool.$1" "$folder/tmp.$1"
  # shellcheck disable=SC2016  # the inner shell's own
  daemon unshare --uts --mount --pid --fork --kill-child --mount-proc sh -c '
    hostname "$1" && mount --bind "$2" /etc/hosts && mount -t tmpfs tmpfs /dev/shm || exit
    slurmd -D -N "$1" & wait' node "$1" "$folder/hosts"
  echo $! > "$folder/node.$1.pid"
}

idle() { [ "$(timeout 5 sinfo -h -N -p main -o %T 2> /dev/null | grep -cx idle)" = "$1" ]; }

await() {
  local i
  for ((i = 0; i < 300; i++)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}

up() {
  local node
  sweep
  mkdir -m 0755 "$folder" "$folder/state" || die "$folder is in use"
  ulimit -c 0
  write_conf "$1"
  : > "$folder/munge.key"
  chmod 0600 "$folder/munge.key"
  head -c 128 /dev/urandom > "$folder/munge.key"
  env -i PATH="$PATH" munged --key-file="$folder/munge.key" --socket="$folder/munge.sock" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
  daemon slurmctld -D -c
  echo $! > "$folder/ctl.pid"
  for node in $(nodes); do start_node "$node"; done
  disown -a
  await idle "$1" || {
    tail -n 5 "$folder"/*.log >&2
    remove "$folder"
    die "the nodes did not come up"
  }
}

# The processes of a node: those in the process namespace of its process 1.
of_node() {
  local parent inside
  parent=$(cat "$folder/node.$1.pid" 2> /dev/null) || return 0
  inside=$(readlink "/proc/$parent/ns/pid_for_children" 2> /dev/null) || return 0
  find /proc -maxdepth 3 -path '/proc/[0-9]*/ns/pid' -printf '%h %l\n' 2> /dev/null |
    sed -n "s/^\/proc\/\([0-9]*\)\/ns ${inside//[\[\]]/.}$/\1/p"
}

busy() {
  local node pid words
  for node in $(nodes); do
    for pid in $(of_node "$node"); do
      words=$(tr '\0\n' '  ' 2> /dev/null < "/proc/$pid/cmdline") || continue
      case $words in
        '' | slurmd\ -D* | sh\ -c\ *slurmd\ -D*) ;;  # ended, and the node's own
        *) echo "$node $pid $words" ;;
      esac
    done
  done
}

# Whether the processes of these pid files are: nothing is left of their command lines.
gone() {
  local file
  for file in "$@"; do
    [ ! -s "$file" ] || ! grep -qs . "/proc/$(cat "$file")/cmdline" || return 1
  done
}

# Ends the processes of these pid files.
end() {
  local file
  for file in "$@"; do
    if [ -s "$file" ]; then kill -9 "$(cat "$file")" 2> /dev/null || true; fi
  done
  await gone "$@" || die "these do not end: $*"
}

crash() {
  end "$folder/node.$1.pid"
  await gone_node "$1"
}

gone_node() { [ -z "$(of_node "$1")" ]; }

remove() {
  end "$1"/node.*.pid "$1/ctl.pid" "$1/munged.pid"
  rm -rf "$1"
}

down() {
  [ -e "$folder" ] || return 0
  timeout 5 scancel --user=root 2> /dev/null || true
  remove "$folder"
}

sweep() {
  local old owner
  for old in /run/ab-[0-9]*-slurm; do
    owner=${old#/run/ab-}
    if [ -d "$old" ] && [ ! -d "/proc/${owner%-slurm}" ]; then remove "$old"; fi
  done
}

# Jobs get the environment of who submits them: not a test's mark of its own processes.
run() { env -u AB_TEST_PROCESS OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"; }

with() {
  local count=$1 code=0
  shift
  check
  trap 'down; exit 130' INT TERM
  up "$count"
  run "$@" || code=$?
  down
  exit "$code"
}

command=${1:-}
shift || true
case $command in
  with) [ $# -ge 2 ] || die "usage: slurm.sh with N COMMAND..."; with "$@" ;;
  check) check ;;
  up) up "$@" ;;
  run) run "$@" ;;
  crash) crash "$1" ;;
  revive) start_node "$1" ;;
  busy) busy ;;
  down) down ;;
  *) sed -n '2,/^set -/s/^# \{0,1\}//p' "$self" >&2; exit 64 ;;
esac
