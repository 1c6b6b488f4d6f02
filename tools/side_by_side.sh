#!/usr/bin/env bash
# Runs commands at the same time. What the first one prints is shown at once, that of the others after it.
# Fails if one of them fails; ended by a signal, it interrupts all of them, and waits for them.
set -m  # each is a process group, and does not ignore SIGINT
logs=() groups=() status=0
end() {
  for group in "${groups[@]}"; do kill -INT -- "-$group" 2>/dev/null; done
  wait
  rm -f "${logs[@]}"
  exit 1
}
trap end INT TERM
bash -c "$1" </dev/null &
groups+=($!)
for command in "${@:2}"; do
  logs+=("$(mktemp)")
  bash -c "$command" </dev/null >"${logs[-1]}" 2>&1 &
  groups+=($!)
done
wait "${groups[0]}" || status=1
for number in "${!logs[@]}"; do
  wait "${groups[number + 1]}" || status=1
  cat "${logs[number]}"
done
rm -f "${logs[@]}"
exit $status
