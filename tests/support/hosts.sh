#!/usr/bin/env bash
# Hosts on this machine: network namespaces joined by a bridge, each with an address, a host name, shared memory and a
# share of the cores of its own, and MPI jobs across them. The machine's own network is not touched. Needs root, ip, tc
# and nsenter.
#
#   hosts.sh with N RATE COMMAND...  makes hosts h1 to hN, of which each sends at most RATE (1gbit; or unlimited), runs
#                                    COMMAND, and removes them. COMMAND finds in MPIRUN how to start ranks on them
#                                    ("$MPIRUN RANKS PROGRAM ..."), and in HOSTS how many there are.
#
# Step times on two hosts, as planned and as measured:
#
#   tests/support/hosts.sh with 2 1gbit tests/bench/plan.sh 2
#   tests/support/hosts.sh with 2 unlimited tests/bench/plan.sh 2
#
# Piece by piece, for the set of hosts that AB_HOSTS names, "ab-" and the process that it belongs to:
#
#   hosts.sh check                   fails if this machine cannot make hosts, and says why
#   hosts.sh up N [RATE]             makes them; sets of processes that are gone are removed
#   hosts.sh mpirun RANKS PROGRAM... as many ranks on each host, or on those of AB_HOSTS_USED ("h1 h3"), in blocks
#   hosts.sh cut HOST | heal HOST    takes its link away: silently, nobody is told that it is closed; gives it back
#   hosts.sh split A B | join A B    loses what these two send to each other, and nothing else
#   hosts.sh crash HOST              cuts it off and kills all that runs there
#   hosts.sh pids                    the processes on all of them
#   hosts.sh down                    kills those and removes the set
#
# Open MPI takes minutes to notice that a host is gone unless it is told to look: see keepalive below.
set -euo pipefail
self=$(realpath "$0")
export AB_HOSTS=${AB_HOSTS:-ab-$$}
# Those of the whole set: what starts ranks on other hosts has only the first one's.
export AB_HOSTS_CORES=${AB_HOSTS_CORES:-$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)}
net=10.77.0  # of every set: they do not see each other

# How mpirun and its daemons look after each other: a question after so many idle seconds, three more a second apart,
# and at most 2^4 - 1 times 0.2 s for what is not acknowledged.
keepalive=${AB_HOSTS_KEEPALIVE:-6}
retries=${AB_HOSTS_RETRIES:-4}

die() {
  echo "hosts.sh: $1" >&2
  exit 2
}

space() { echo "$AB_HOSTS-$1"; }
spaces() { ip netns list | awk '{print $1}'; }
hosts() { spaces | sed -n "s/^$AB_HOSTS-\(h[0-9]*\)$/\1/p" | sort -V; }
need() { [ -e "/run/netns/$(space "$1")" ] || die "no host $1 in $AB_HOSTS"; }
inside() { ip netns exec "$(space "$1")" "${@:2}"; }

check() {
  local tool probe
  [ "$(id -u)" = 0 ] || die "only root can make network namespaces"
  for tool in ip tc nsenter unshare taskset mpirun; do
    command -v "$tool" > /dev/null || die "$tool is not installed"
  done
  probe=$(space probe)
  ip netns add "$probe" 2> /dev/null || die "this machine does not let root make network namespaces"
  local failure=
  ip -n "$probe" link add br0 type bridge 2> /dev/null || failure="its kernel has no bridges"
  nsenter --net="/run/netns/$probe" unshare --uts --mount mount -t tmpfs tmpfs /dev/shm 2> /dev/null ||
    failure="it does not let root make host names and mounts of their own"
  ip netns del "$probe"
  [ -z "$failure" ] || die "this machine cannot make hosts: $failure"
}

remove() {
  local set=$1 name pid
  for name in $(spaces | grep "^$set-" || true); do
    for pid in $(ip netns pids "$name"); do kill -9 "$pid" 2> /dev/null || true; done
    ip netns del "$name"
  done
}

sweep() {
  local set
  for set in $(spaces | sed -n 's/^\(ab-[0-9]*\)-\(sw\|probe\|h[0-9]*\)$/\1/p' | sort -u); do
    [ -d "/proc/${set#ab-}" ] || remove "$set"
  done
}

limit() {
  if [ "$2" != unlimited ]; then inside "$1" tc qdisc add dev eth0 root tbf rate "$2" burst 256k latency 50ms; fi
}

up() {
  local count=$1 rate=${2:-unlimited} host i
  sweep
  ip netns add "$(space sw)"
  ip -n "$(space sw)" link add br0 type bridge
  ip -n "$(space sw)" link set br0 up
  for ((i = 1; i <= count; i++)); do
    host=h$i
    ip netns add "$(space $host)"
    ip -n "$(space sw)" link add "p$i" type veth peer name eth0 netns "$(space $host)"
    ip -n "$(space sw)" link set "p$i" master br0 up
    ip -n "$(space $host)" link set lo up
    ip -n "$(space $host)" addr add "$net.$i/24" dev eth0
    ip -n "$(space $host)" link set eth0 up
    inside $host sh -c "echo $retries > /proc/sys/net/ipv4/tcp_retries2"
    limit $host "$rate"
  done
}

host_table() {
  local host
  echo "127.0.0.1 localhost"
  for host in $(hosts); do echo "$net.${host#h} $host"; done
}

# The cores of a host: its share of all, or one that it has in common with others.
cores() {
  local number=$((${1#h} - 1)) count share all=() range i
  for range in ${AB_HOSTS_CORES//,/ }; do
    for ((i = ${range%-*}; i <= ${range#*-}; i++)); do all+=("$i"); done
  done
  count=$(hosts | wc -l)
  share=$((${#all[@]} / count))
  if [ "$share" -eq 0 ]; then
    echo "${all[number % ${#all[@]}]}"
  else
    (IFS=,; echo "${all[*]:number * share:share}")
  fi
}

# Runs a command on a host, in place of this shell. Not by `ip netns exec`, which hides control groups.
on_host() {
  local host=$1
  shift
  # shellcheck disable=SC2016  # the inner shell's own
  exec taskset -c "$(cores "$host")" nsenter --net="/run/netns/$(space "$host")" unshare --uts --mount sh -c '
    hostname "$1" && mount -t tmpfs tmpfs /dev/shm && printf "%s\n" "$2" > /dev/shm/hosts &&
      mount --bind /dev/shm/hosts /etc/hosts && shift 2 && exec "$@"' - "$host" "$(host_table)" "$@"
}

run_mpi() {
  local ranks=$1 names slots list
  shift
  read -ra names <<< "${AB_HOSTS_USED:-$(hosts | tr '\n' ' ')}"
  [ ${#names[@]} -gt 0 ] || die "no hosts in $AB_HOSTS"
  slots=$(((ranks + ${#names[@]} - 1) / ${#names[@]}))
  list=$(printf "%s:$slots," "${names[@]}")
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  on_host "${names[0]}" mpirun --host "${list%,}" --bind-to none -np "$ranks" \
    --mca ras ^slurm --mca plm rsh --mca plm_rsh_agent "$self rsh" \
    --mca pml ob1 --mca btl tcp,self,vader --mca mpi_yield_when_idle 1 \
    --mca btl_tcp_if_include "$net.0/24" --mca oob_tcp_if_include "$net.0/24" \
    --mca oob_tcp_keepalive_time "$keepalive" --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 "$@"
}

# A neighbour whose hardware address nobody has: what is sent to it is lost without a word.
lose() { inside "$1" ip neigh replace "$net.${2#h}" lladdr 02:00:00:00:00:01 nud permanent dev eth0; }
find_again() { inside "$1" ip neigh del "$net.${2#h}" dev eth0; }

crash() {
  local pid
  ip -n "$(space "$1")" link set eth0 down
  for pid in $(ip netns pids "$(space "$1")"); do kill -9 "$pid" 2> /dev/null || true; done
}

with() {
  local count=$1 rate=$2
  shift 2
  check
  trap 'remove "$AB_HOSTS"' EXIT
  up "$count" "$rate"
  HOSTS=$count MPIRUN="$self mpirun" "$@"
}

command=${1:-}
shift || true
case $command in
  with) [ $# -ge 3 ] || die "usage: hosts.sh with N RATE COMMAND..."; with "$@" ;;
  check) check ;;
  up) up "$@" ;;
  mpirun) run_mpi "$@" ;;
  rsh) host=$1; shift; on_host "$host" sh -c "$*" ;;
  cut) need "$1"; ip -n "$(space "$1")" link set eth0 down ;;
  heal) need "$1"; ip -n "$(space "$1")" link set eth0 up ;;
  split) need "$1"; need "$2"; lose "$1" "$2"; lose "$2" "$1" ;;
  join) need "$1"; need "$2"; find_again "$1" "$2"; find_again "$2" "$1" ;;
  crash) need "$1"; crash "$1" ;;
  pids) for host in $(hosts); do ip netns pids "$(space "$host")"; done ;;
  down) remove "$AB_HOSTS" ;;
  *) sed -n '2,/^set -/s/^# \{0,1\}//p' "$self" >&2; exit 64 ;;
esac
