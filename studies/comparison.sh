#!/usr/bin/env bash
# Runs of docs/studies/fields.md: 20 seeds of six methods on five landscapes. Finished runs are skipped.
#   studies/comparison.sh OXFORD_CSV MEUSE_CSV [OUT]
# OXFORD_CSV has columns x_m, y_m, ph (gstat's `oxford`); MEUSE_CSV has x_m, y_m, zinc_ppm (sp's `meuse`).
set -euo pipefail
oxford=${1:?path of the Oxford soil survey} meuse=${2:?path of the Meuse survey} out=${3:-runs/comparison}
methods=coordination.kind=exact,max-sum,greedy,independent,lawn-mower,random
sweep() { swarmbo sweep "$@" --seeds 20 --workers 2 --set "$methods" --out "$out" --quiet; }

sweep robots
sweep robots-window
sweep robots-topobathy
sweep measured --set name=oxford-ph --set rounds=4 --set "environment.field.csv=$oxford" \
    --set environment.field.value=ph --set environment.field.unit=pH
sweep measured --set name=meuse-zinc --set rounds=6 --set "environment.field.csv=$meuse" \
    --set environment.field.value=zinc_ppm --set environment.field.unit=ppm
swarmbo compare "$out" --reference exact --table "$out/comparison.csv" --figure "$out/comparison.png"
