# Starts one attempt at a run. $program and $description are the texts of its files. Standard input
# is read by this shell alone: assignments of the variables that the run needs. They reach the
# trainer by inheritance, through a tmux server that serves this run only.
[ -x "$root/env/bin/python" ] && [ -d "$root/project" ] || {
    echo "nothing is deployed in $root" >&2
    exit 4
}
command -v tmux >/dev/null || {
    echo 'tmux: command not found' >&2
    exit 127
}
root=$(cd "$root" && pwd) && mkdir -p "$root/runs/$run" && chmod 700 "$root/runs/$run" || exit 1
folder=$root/runs/$run
case $(state) in
running | ending | orphan)
    tell_state >&2
    exit 3
    ;;
esac
next=$folder/next.$$
mkdir "$next" || exit 1
# Through cat, which says why when it cannot write.
if ! printf '%s' "$program" | cat >"$next/run.sh" ||
    ! printf '%s' "$description" | cat >"$next/description.json"; then
    rm -rf "$next"
    exit 1
fi
eval "$(cat)"
shell=$(command -v bash || command -v sh)
# With several words tmux starts the program itself, and no login shell.
tmux -L "$(socket)" -f /dev/null new-session -d -s "$run" -x 160 -y 48 \
    "$shell" "$next/run.sh" "$root" "$next" 2>"$next/why"
failed=$?
tries=0
# The program takes its files over and removes the folder.
while [ "$failed" = 0 ] && [ -d "$next" ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ]; then
        echo 'the program of the run did not begin' >>"$next/why"
        failed=1
    fi
    pause
done
if [ "$failed" != 0 ]; then
    why=$(cat "$next/why")
    rm -rf "$next"
    case $why in
    *duplicate*)
        tell_state >&2
        exit 3
        ;;
    esac
    printf '%s\n' "$why" >&2
    exit 1
fi
tell_state
