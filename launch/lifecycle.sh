#!/usr/bin/env bash
# One attempt at a run, and what follows from how it ended. Sourced by train.sbatch and local.sh, which say how ranks
# are started and how there is a next attempt; works without SLURM.
#
# Two lines for each attempt go to RUN/attempts.jsonl, the second only if the launching shell lives to write it:
#
#   {"event":"begin","job":"12","attempt":2,"time":"...","hosts":"n[1-2]","ranks":2,"step":30}
#   {"event":"end","job":"12","attempt":2,"time":"...","code":75,"step":60,"next":"again","told":"USR1","why":"..."}
#
# "step" is that of the newest checkpoint at that moment, "next" one of done, again, stop; "told" is the signal that asked
# for the end, "" if none did. "job" is the same for all attempts that follow from one submission.
#
# shellcheck disable=SC2034  # what is decided here is read there

# For the one that sources this to set:
run=              # the run directory
job=              # what is attempted again and again
hosts="" ranks=1  # for the record
launch=()         # what starts a program on all ranks

# What came of an attempt:
number=0          # counted from 1
code=0            # the exit code
next="" why=""     # done, again or stop; a sentence

wish=             # USR1, TERM or INT, once it has come
child=

say() { echo "launch: $*" >&2; }

# Settings of the site: `home` is the tree of this program.
take_site() {
  local site=${AB_SITE:-$home/launch/site.env}
  AB_CONTAINER=() AB_SBATCH=() AB_SRUN=() AB_MPIRUN=()
  # shellcheck source=launch/site.env
  [ ! -e "$site" ] || . "$site"
  program=("${AB_CONTAINER[@]}" "${AB_PROGRAM:-$home/build/release/anabranch}")
  requeues=${AB_REQUEUES:-2}
  # A rank that is cut off is given up after seconds, not minutes.
  export OMPI_MCA_oob_tcp_keepalive_time=${OMPI_MCA_oob_tcp_keepalive_time:-6}
  export OMPI_MCA_oob_tcp_keepalive_intvl=${OMPI_MCA_oob_tcp_keepalive_intvl:-1}
  export OMPI_MCA_oob_tcp_keepalive_probes=${OMPI_MCA_oob_tcp_keepalive_probes:-3}
  # hcoll's collectives are known to hang; a process with InfiniBand memory must be told that it may fork.
  export OMPI_MCA_coll_hcoll_enable=${OMPI_MCA_coll_hcoll_enable:-0}
  export RDMAV_FORK_SAFE=${RDMAV_FORK_SAFE:-1}
}

# The run directory and the endpoint of a configuration: "$@" is what follows `train`. Sets `run` and `listen`; fails
# with the program's code for a bad configuration.
read_config() {
  local values
  values=$("${program[@]}" config get "$1" run.dir metrics.listen "${@:2}") || return
  { read -r run; read -r listen; } <<< "$values"
}

newest_step() {
  local folder newest=0
  for folder in "$run"/checkpoints/step-[0-9]*; do
    [ ! -d "$folder" ] || newest=$((10#${folder##*-} > newest ? 10#${folder##*-} : newest))
  done
  echo "$newest"
}

# How many attempts of this job, the last ones in a row, began at the step where it stands now.
idle_attempts() {
  local line idle=0 here
  here="\"step\":$(newest_step)}"
  while IFS= read -r line; do
    [[ $line == '{"event":"begin","job":"'"$job"'",'* ]] || continue
    if [[ $line == *"$here" ]]; then idle=$((idle + 1)); else idle=0; fi
  done 2> /dev/null < "$run/attempts.jsonl"
  echo "$idle"
}

attempts_so_far() { grep -c '^{"event":"begin","job":"'"$job"'",' "$run/attempts.jsonl" 2> /dev/null; }

# shellcheck disable=SC2059  # a format is what it takes
record() { printf "$1\n" "${@:2}" >> "$run/attempts.jsonl"; }

# What follows from an exit code: sets `next` and `why`. The one place that says so.
judge() {
  case $1 in
    0) next="done" why="the run is complete" ;;
    75) next=again why="saved on request" ;;
    69) next=again why="a rank was lost, or hung" ;;
    130) next=stop why="stopped on request, and saved" ;;
    64) next=stop why="bad command line" ;;
    65) next=stop why="bad data" ;;
    70) next=stop why="an internal fault, losses that stay non-finite, or ranks whose weights differ" ;;
    74) next=stop why="the disk failed, or another job holds the run directory" ;;
    78) next=stop why="bad configuration, or a machine that does not suit it" ;;
    *) next=again why="ended by a signal or the launcher (code $1), as when a rank or node is lost" ;;
  esac
  [ "$next" = again ] || return 0
  if [ "$wish" = TERM ] || [ "$wish" = INT ]; then
    next=stop why="$why; told to end by $wish"
    return 0
  fi
  local idle
  idle=$(idle_attempts)
  [ "$idle" -le "$requeues" ] ||
    next=stop why="$why; no new step in $idle attempts in a row, at step $(newest_step)"
}

# Runs a command beside this shell until it ends, whatever signals come meanwhile; returns its exit code.
supervise() {
  local result interrupted=yes
  "$@" < /dev/null &
  child=$!
  [ -z "$wish" ] || kill -USR1 "$child" 2> /dev/null  # it came before there was a child
  while [ -n "$interrupted" ]; do
    interrupted=
    wait -f "$child"  # not until it is only stopped
    result=$?
    [ -n "$interrupted" ] || child=
  done
  return "$result"
}

# The ranks save and end; mpirun and srun hand them this signal, and nothing gentler.
ask() {
  say "$1"
  interrupted=yes
  wish=$1
  [ -z "$child" ] || kill -USR1 "$child" 2> /dev/null
}

listen_for_wishes() {
  trap 'ask USR1' USR1
  trap 'ask TERM' TERM
}

# What the attempt ran in, for who asks later; secrets are left out.
keep_environment() {
  {
    echo "== attempt $number of job $job, $(date -Is), on $(hostname)"
    printf '%q ' "${launch[@]}" "${program[@]}" train "$@"
    echo
    "${program[@]}" --version
    env -0 | grep -zvE '^[^=]*(TOKEN|SECRET|PASS|KEY|CRED)[^=]*=' | sort -z | tr '\0' '\n'
    ulimit -a
    [ -z "${SLURM_JOB_ID:-}" ] || scontrol show job "$SLURM_JOB_ID"
    if command -v nvidia-smi > /dev/null; then nvidia-smi -L; fi
  } >> "$run/log/job-$job-environment.txt" 2>&1
}

# Writes down what came of the attempt and says it.
conclude() {
  record '{"event":"end","job":"%s","attempt":%d,"time":"%s","code":%d,"step":%d,"next":"%s","told":"%s","why":"%s"}' \
    "$job" "$number" "$(date -Is)" "$code" "$(newest_step)" "$next" "$wish" "$why"
  say "$next: $why (exit code $code, step $(newest_step))"
}

# One attempt: examines the machines, then trains. "$@" is what follows `train`. Sets `number`, `code`, `next` and `why`.
attempt() {
  local step
  mkdir -p "$run/log"
  number=$(($(attempts_so_far) + 1))
  step=$(newest_step)
  if [ "$(idle_attempts)" -gt "$requeues" ]; then  # those that nobody lived to judge
    code=69 next=stop why="no new step in $(idle_attempts) attempts in a row, at step $step"
  else
    record '{"event":"begin","job":"%s","attempt":%d,"time":"%s","hosts":"%s","ranks":%d,"step":%d}' \
      "$job" "$number" "$(date -Is)" "$hosts" "$ranks" "$step"
    say "attempt $number of job $job on $hosts, ranks: $ranks, at step $step of $run"
    keep_environment "$@"
    supervise "${launch[@]}" "${program[@]}" doctor "$@"
    code=$?
    if [ -n "$wish" ]; then
      code=75
    elif [ "$code" -eq 0 ]; then
      supervise "${launch[@]}" "${program[@]}" train "$@"
      code=$?
    fi
    judge "$code"
  fi
  conclude
}
