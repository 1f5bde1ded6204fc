#!/usr/bin/env bash
# What a decoder that was not trained for it loses when its attention is swapped, and what a window buys back.
set -euo pipefail

usage="usage: experiments/generation.sh MODEL [OUT]
Samples 24 texts of 256 tokens from MODEL (temperature 0.9, seeds 1 to 24) into OUT/texts.jsonl [build/generation] and
prints their perplexity with exact attention and others (docs/generation.md). Takes about 3 minutes on two cores."
case ${1:-} in "" | -h | --help) echo "$usage"; exit 0 ;; esac
model=$1 out=${2:-build/generation} ramify=${RAMIFY:-build/release/ramify}
mkdir -p "$out"

if [ ! -s "$out/texts.jsonl" ]; then
  "$ramify" generate "$model" --max-tokens 255 --temperature 0.9 --seed 1 --samples 24 --ignore-end --cache kv --json \
    > "$out/texts.part"
  mv "$out/texts.part" "$out/texts.jsonl"
fi

run() { "$ramify" perplexity "$model" "$out/texts.jsonl" --separate "$@"; }
run --exact
for window in 8 16 32 64; do run --window $window; done
for hierarchy in '16*' '8*' '4*' 2,4,8,16 64,4; do
  run --hierarchy "$hierarchy"
  run --hierarchy "$hierarchy" --tie block
done
for window in 8 16 32 64; do run --hierarchy '16*' --window $window; done
for window in 16 32; do run --hierarchy '4*' --window $window; done
run --hierarchy '16*' --window 32 --layers 1-4
run --hierarchy '16*' --layers 3-5
