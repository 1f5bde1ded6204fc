# Everything that scripts/test and scripts/demo need before their job: system packages, .venv, the release build.
# Sourced. Nothing here touches the network, apt or pip when nothing is missing.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
LOGS=$ROOT/build/logs
VERBOSE=${VERBOSE:-0}

# A Python path or home of the caller's would leak into the environment that we make.
unset PYTHONHOME PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
# One locale for all: where none is set Python gives its children another, and ccache then finds nothing.
export LC_ALL=C.UTF-8
# Paths below this folder count as relative, so that one build finds what another has compiled.
export CCACHE_BASEDIR=$ROOT
# What a file includes is learnt from its compilation, not from preprocessing it once more before.
export CCACHE_DEPEND=1

trap 'printf "\ninterrupted\n" >&2; exit 130' INT

stop() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# run_step NAME COMMAND...: runs the command with its output in build/logs and prints the name and the seconds it took.
# Returns the command's status; STEP_LOG is where its output went. The command gets a subshell, so that Ctrl-C is
# reported here and not in its log. Bash ignores `set -e` inside: a function run this way chains its commands with &&.
run_step() {
  local name=$1 status=0 started=${EPOCHREALTIME/[.,]/} took
  shift
  STEP_LOG=$LOGS/${name// /-}.log
  printf '%-24s' "$name"
  if ((VERBOSE)); then
    printf '\n'
    ("$@") 2>&1 | tee "$STEP_LOG" || status=$?
    printf '%-24s' "$name"
  else
    ("$@") >"$STEP_LOG" 2>&1 || status=$?
  fi
  took=$((${EPOCHREALTIME/[.,]/} - started))
  printf '%5d.%d s\n' $((took / 1000000)) $((took / 100000 % 10))
  return "$status"
}

# A step of the set-up: it goes to stderr, and nothing can follow when it fails.
setup_step() {
  if ! run_step "$@" >&2; then
    ((VERBOSE)) || cat "$STEP_LOG" >&2
    stop "$1 failed; the log above is in $STEP_LOG"
  fi
}

missing_packages() {
  local wanted installed
  wanted=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$ROOT/scripts/packages.txt" | sort)
  # dpkg-query fails when it does not know one of them; what it knows is printed all the same
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
    sed -n 's/^installed //p' | sort -u) || true
  comm -23 <(printf '%s\n' "$wanted") <(printf '%s\n' "$installed")
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  # an earlier installation may have been killed half-way
  "${AS_ROOT[@]}" dpkg --configure -a &&
    { "${AS_ROOT[@]}" apt-get update || echo "apt-get update failed; going on with the lists that are here"; } &&
    "${AS_ROOT[@]}" apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
}

need_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null; then
    echo "no dpkg here: the packages of scripts/packages.txt are taken to be installed" >&2
    return
  fi
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  AS_ROOT=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }; }; then
      stop "these system packages are missing, and only root can install them:
${missing[*]}
As root: apt-get install --no-install-recommends ${missing[*]}"
    fi
    AS_ROOT=(sudo --preserve-env=DEBIAN_FRONTEND)
  fi
  setup_step "system packages" install_packages "${missing[@]}"
}

# The real interpreter behind the first python3 that can make a .venv, also when that one is inside one.
find_python() {
  local candidate
  for candidate in "${PYTHON:-python3}" /usr/bin/python3; do
    "$candidate" -c 'import ensurepip, sys, venv
if sys.version_info < (3, 10): sys.exit(1)
print(getattr(sys, "_base_executable", sys.executable))' 2>/dev/null && return
  done
  stop "no Python 3.10 or newer with venv was found; set PYTHON to one"
}

# What a finished .venv has in its stamp: where it is, for which Python, and what was asked for.
venv_stamp() {
  "$VENV/bin/python" -c 'import sys; print(sys.prefix, "Python %d.%d" % sys.version_info[:2])' &&
    cat "$ROOT/scripts/requirements.txt"
}

venv_is_ready() {
  [[ -f $VENV/stamp ]] && [[ $(venv_stamp) == "$(<"$VENV/stamp")" ]] &&
    "$VENV/bin/python" - "$ROOT/scripts/requirements.txt" <<'PY'
import importlib.metadata, sys
from packaging.requirements import Requirement

for line in map(str.strip, open(sys.argv[1])):
    if line and not line.startswith("#"):
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate():
            assert importlib.metadata.version(wanted.name) in wanted.specifier, wanted
PY
}

# The stamp comes last: without it a .venv is half made, and pip cannot be trusted to repair it.
make_venv() {
  rm -rf "$VENV" && "$1" -m venv "$VENV" && "$VENV/bin/python" -m pip install -r "$ROOT/scripts/requirements.txt" &&
    venv_stamp >"$VENV/stamp.new" && mv "$VENV/stamp.new" "$VENV/stamp" && venv_is_ready
}

need_venv() {
  local python
  venv_is_ready 2>/dev/null && return
  python=$(find_python)
  setup_step "python packages" make_venv "$python"
}

# build PRESET [CMAKE BUILD OPTIONS]
build() {
  local folder=$ROOT/build/$1 source
  # a build folder that was moved or copied with the checkout belongs to another source
  if source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null) &&
    [[ $source != "$ROOT" ]]; then
    rm -rf "$folder"
  fi
  (cd "$ROOT" && cmake --preset "$1" -DPython3_EXECUTABLE="$VENV/bin/python") &&
    cmake --build "$folder" --parallel "$(nproc)" "${@:2}"
}

# set_up [CMAKE BUILD OPTIONS]: all of it. One at a time, so that two calls do not make the same .venv.
set_up() {
  mkdir -p "$LOGS" || stop "cannot write in $ROOT"
  # ccache and pip keep their caches at home; without one that can be written they get one here
  [[ -n ${HOME:-} && -w $HOME ]] || export HOME=$ROOT/build/home
  mkdir -p "$HOME"
  need_packages
  exec {lock}>"$ROOT/build/setup.lock"
  flock "$lock"
  need_venv
  setup_step "release build" build release "$@"
  exec {lock}>&-
}
