#!/bin/sh
# One task, from the request to the record, in a temporary directory. Run it with `make demo`.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
HOME=$work XDG_CACHE_HOME=$work/cache
COLUMNS=${COLUMNS:-100}
export HOME XDG_CACHE_HOME COLUMNS
unset VADE_SKILL_ROOTS VADE_CACHE_DIR || true

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi

step() {
    printf '\n%s%s%s\n$ %s\n' "$bold" "$1" "$plain" "$2"
    sh -c "$2"
}

# A separate project, even if the temporary directory is inside another one.
mkdir -p "$work/project/.git" && cd "$work/project"
printf 'day,fruit,sold\nMonday,apples,12\nMonday,pears,7\nTuesday,apples,15\nTuesday,pears,\n' > sales.csv

step "1. The request is: Summarise sales.csv" "cat sales.csv"
step "2. Search finds the skill by its description." "vade search 'Summarise sales.csv' -n 1"
step "3. The agent loads it, runs its script in a sandbox, and answers. --yes approves the script." \
    "vade run 'Summarise sales.csv' --yes" || {
    printf '\nThe script did not run. This is what works here:\n'
    vade doctor
    exit 1
}
step "4. Every step is recorded, with the sandbox and the approval." \
    "vade runs show | grep -E '^ +[0-9.]+  |sandbox:'"

cat <<'NEXT'

Five commands to try next, in this directory:

  .venv/bin/vade list --root examples/skills      List the skills.
  .venv/bin/vade run "Compare examples/openai_agent.py with examples/anthropic_agent.py"
                                                  Run a task; vade asks you before it runs the script.
  .venv/bin/vade new my-skill                     Create a skill from a template.
  .venv/bin/vade doctor --root examples/broken    See what is wrong with a skill, and what to write instead.
  .venv/bin/vade eval run csv-summary --yes       Measure whether a skill does its job.

README.md lists the next steps.
NEXT
