#!/bin/sh
# What vade does today, on the skills in this repository. Run it with `make demo`.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
HOME=$work XDG_CACHE_HOME=$work/cache
COLUMNS=${COLUMNS:-100}
export HOME XDG_CACHE_HOME COLUMNS
unset VADE_SKILL_ROOTS VADE_CACHE_DIR || true

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi

step() {
    printf '\n%s# %s%s\n$ %s\n' "$bold" "$1" "$plain" "$2"
    sh -c "$2"
}

step "Which skills are there? (built-in ones, and the examples)" "vade list --root examples/skills"
step "All about one of them" "vade inspect weekly-report --root examples/skills"
step "Which one fits?" "vade search 'what is in this spreadsheet' --root examples/skills -n 2"
step "In Chinese as well as in English" "vade search 整理会议的待办 --root examples/skills -n 1"
step "What a model gets once it has chosen" "vade show weekly-report --root examples/skills | head -12"
step "Are they written as the specification wants?" "vade validate examples/skills src/vademecum/builtin"
step "A broken one is left out; the others are not" "vade list --root examples/broken | tail -2"
step "Why, where, and what to write instead" "vade doctor --root examples/broken || true"

printf 'apples 3\npears 5\n' > "$work/monday.txt"
printf 'apples 4\npears 5\nplums 1\n' > "$work/tuesday.txt"
step "A built-in skill's script, by hand" \
    "python3 src/vademecum/builtin/file-diff/scripts/compare.py $work/monday.txt $work/tuesday.txt || true"
printf '\nNext: .venv/bin/vade new my-skill, and README.md.\n'
