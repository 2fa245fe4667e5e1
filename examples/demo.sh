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

step "What is there, and what to do with it" "vade"
step "Which skills are there? (built-in ones, and the examples)" "vade list --root examples/skills"
step "All about one of them" "vade inspect weekly-report --root examples/skills"
step "Which one fits?" "vade search 'what is in this spreadsheet' --root examples/skills -n 2"
step "In Chinese as well as in English" "vade search 整理会议的待办 --root examples/skills -n 1"
step "What a model gets once it has chosen" "vade show weekly-report --root examples/skills | head -12"
step "Are they written as the specification wants?" "vade validate examples/skills src/vademecum/builtin"
step "A broken one is left out; the others are not" "vade list --root examples/broken | tail -2"
step "Why, where, and what to write instead" "vade doctor --root examples/broken || true"

mkdir "$work/project" && cd "$work/project"
printf 'apples 3\npears 5\n' > monday.txt
printf 'apples 4\npears 5\nplums 1\n' > tuesday.txt
step "The whole job: it picks a skill, --yes approves, the script runs in a sandbox" \
    "vade run 'Compare monday.txt with tuesday.txt' --yes"
step "The same in Chinese" "vade run '比较 monday.txt 和 tuesday.txt' --yes --quiet | head -3"
step "Without approval and with nobody to ask, it is refused" \
    "vade run 'Compare monday.txt with tuesday.txt' --quiet < /dev/null || echo \"exit code \$?\""
step "What it did, step by step, from its record" "vade runs list && vade runs show \$(vade runs list --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"runs\"][0][\"run_id\"])') | head -40"
step "Would it be the same today?" "vade runs replay"
step "A skill of your own" \
    "vade new greeter --description 'Greet people by name. Use when asked to greet somebody.'"
step "Skills travel: packed, installed elsewhere, compared with the lock" \
    "vade export greeter -o greeter.zip && vade install greeter.zip --scope user && vade verify --scope user"
step "A slip of the finger" "vade runs lsit || true"
printf '\nNext: .venv/bin/vade run "what you want done", .venv/bin/vade chat, and README.md.\n'
