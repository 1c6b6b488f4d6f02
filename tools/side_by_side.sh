#!/usr/bin/env bash
# Runs commands at the same time. What the first one prints is shown at once, that of the others after it.
# Fails if one of them fails; ended by a signal, it ends all of them.
logs=() pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait; rm -f "${logs[@]}"; exit 1' INT TERM
for command in "${@:2}"; do
  logs+=("$(mktemp)")
  bash -c "$command" >"${logs[-1]}" 2>&1 &
  pids+=($!)
done
bash -c "$1" &
first=$! status=0
wait "$first" || status=1
for number in "${!pids[@]}"; do
  wait "${pids[number]}" || status=1
  cat "${logs[number]}"
done
rm -f "${logs[@]}"
exit $status
