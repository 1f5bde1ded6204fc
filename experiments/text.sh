#!/usr/bin/env bash
# Hierarchical, flat and no attention on real texts and pictures: the same model, data, rate and seeds for all three.
# Each run is a folder under RESULTS; those that are finished are not done again, those that were stopped go on.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: experiments/text.sh DATA_DIR [options]

DATA_DIR has imdb/, 20news/, bbc/, arxiv/, fashion/ and glove/, each with {train,test}.jsonl.zst (docs/experiments.md).

  --only LIST        tasks, such as imdb,bbc; all: imdb,20news,bbc,arxiv,fashion-type,fashion-usage
  --attention LIST   of hierarchical,flat,none
  --seeds LIST       default 0,1,2
  --device DEVICE    cpu (default) or cuda
  --results DIR      default experiments/results
  --table            only print the table of the results that are there
  -- OPTIONS         go to `ramify train`, such as --epochs 1

RAMIFY is the program, by default build/release/ramify.
USAGE
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
ramify=${RAMIFY:-$here/../build/release/ramify}
results=$here/results
tasks=imdb,20news,bbc,arxiv,fashion-type,fashion-usage
attentions=hierarchical,flat,none
seeds=0,1,2
device=cpu
data=
table=0
while (($#)); do
  case $1 in
    --only) tasks=$2 && shift ;;
    --attention) attentions=$2 && shift ;;
    --seeds) seeds=$2 && shift ;;
    --device) device=$2 && shift ;;
    --results) results=$2 && shift ;;
    --table) table=1 ;;
    -h | --help) usage && exit ;;
    --) shift && break ;;
    -*) printf 'text.sh: unknown option %s; see --help\n' "$1" >&2 && exit 2 ;;
    *) data=$1 ;;
  esac
  shift
done
extra=("$@")

print_table() {
  python3 "$here/table.py" "$results"
}
if ((table)); then
  print_table
  exit
fi
[[ -d $data ]] || { usage >&2 && exit 2; }
[[ -x $ramify ]] || { printf 'text.sh: %s is not there; run scripts/test or set RAMIFY\n' "$ramify" >&2 && exit 2; }

# What each task is told, beside the attention and the seed. One tuning for all three kinds of attention.
options_of() {
  local words=(--word-vectors "$data/glove/glove.100d.txt.zst" --config "$here/text.json")
  case $1 in
    imdb) echo "${words[@]}" --fields text --max-leaves 512 --epochs 4 ;;
    20news) echo "${words[@]}" --max-leaves 512 --epochs 6 ;;
    bbc) echo "${words[@]}" --max-leaves 1024 --epochs 8 ;;
    arxiv) echo "${words[@]}" --ignore accepted --max-leaves 512 --epochs 3 ;;
    fashion-type)
      echo --config "$here/pictures.json" --images "$data/fashion/images.tar" --schema "$here/fashion.json" \
        --fields image,gender,colour,season,usage --patch 8 --epochs 12
      ;;
    fashion-usage)
      echo --config "$here/pictures.json" --images "$data/fashion/images.tar" --schema "$here/fashion.json" \
        --fields image,name --patch 8 --epochs 12
      ;;
    *) printf 'text.sh: there is no task %s\n' "$1" >&2 && return 2 ;;
  esac
}

target_of() {
  case $1 in
    fashion-*) echo "${1#fashion-}" ;;
    *) echo label ;;
  esac
}

for task in ${tasks//,/ }; do
  folder=$data/${task%%-*}
  options=$(options_of "$task")
  valid=()
  [[ -f $folder/dev.jsonl.zst ]] && valid=(--valid "$folder/dev.jsonl.zst")
  for seed in ${seeds//,/ }; do
    for attention in ${attentions//,/ }; do
      out=$results/$task/$attention-$seed
      if [[ -f $out/evaluation.json ]]; then
        continue
      fi
      printf '%s, %s, seed %s\n' "$task" "$attention" "$seed" >&2
      # shellcheck disable=SC2086 # the options are words
      "$ramify" train "$folder/train.jsonl.zst" "${valid[@]}" --test "$folder/test.jsonl.zst" \
        --target "$(target_of "$task")" $options --attention "$attention" --seed "$seed" --device "$device" \
        --resume --out "$out" --explain 0 "${extra[@]}"
    done
  done
done
print_table
