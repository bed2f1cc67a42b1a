# One attempt at the run, in tmux. Above stand $run, $preset, $output, $shown, $on_end,
# $on_end_delay (seconds) and the functions `prepare` and `train`. Nothing secret stands here:
# values are in the environment.
root=$1 next=$2
folder=$root/runs/$run
cd "$folder" || exit 1
# Ctrl-C in tmux and the end of tmux are for the trainer; this shell records how it ended.
trap : INT TERM HUP

now() { date -u +%Y-%m-%dT%H:%M:%SZ; }
note() { printf '[%s] %s\n' "$(now)" "$1" | tee -ia log; }
pause() { sleep 0.1 2>/dev/null || sleep 1; }
private_folder() {
    mktemp -d 2>/dev/null && return
    made=${TMPDIR:-/tmp}/voicehub-$$
    (umask 077 && mkdir "$made") && echo "$made"
}

attempt=$(($(cat attempt 2>/dev/null || echo 0) + 1))
rm -f exit exit.new ended pid on-end cancel-on-end
mv -f "$next/run.sh" "$next/description.json" .
echo "$attempt" >attempt
echo "$$" >shell
printf '%s\n' "$preset" >preset
printf '%s\n' "$output" >output
: >>log
echo "$(($(wc -c <log)))" >offset
now >started
# The place for the exit code is taken now, so that it can be written when the disk is full.
echo '   ' >exit.new
rm -rf "$next"

# Runs "$@" with its output in the log and in tmux. What it leaves running may hold the pipe open:
# the end of the run does not wait for that.
logged() {
    rm -f "$pipes/done" "$pipes/pipe"
    mkfifo "$pipes/pipe"
    { tee -ia log <"$pipes/pipe"; : >"$pipes/done"; } &
    "$@" >"$pipes/pipe" 2>&1
    ended_with=$?
    waited=0
    until [ -e "$pipes/done" ] || [ "$waited" -ge 20 ]; do
        waited=$((waited + 1))
        pause
    done
    return "$ended_with"
}

attempt_once() (
    # The number of this subshell, which becomes the trainer. $$ is that of its parent.
    own=$(exec sh -c 'echo "$PPID"')
    echo "$own" >pid
    cd "$root/project" || exit 1
    PATH=$root/env/bin:$PATH PYTHONUNBUFFERED=1
    export PATH PYTHONUNBUFFERED
    set -e
    prepare
    train
)

ending() (
    cd "$root/project" || exit 1
    VOICEHUB_RUN=$run VOICEHUB_EXIT_CODE=$code
    export VOICEHUB_RUN VOICEHUB_EXIT_CODE
    sh -c "$on_end"
)

note "attempt $attempt at $run: $shown"
# Not in the folder of the run: its disk may be one that takes no pipes.
if pipes=$(private_folder 2>>log); then
    logged attempt_once
    code=$?
else
    note "no folder for pipes can be made in ${TMPDIR:-/tmp}"
    code=1 on_end=
fi
note "ended with exit code $code"
now >ended
printf '%-3s\n' "$code" 1<>exit.new
mv -f exit.new exit

if [ -n "$on_end" ]; then
    [ "$on_end_delay" = 0 ] || note "in $on_end_delay seconds: $on_end"
    # Whoever follows the log hears of the end before the machine may go away.
    left=$((on_end_delay + 1))
    while [ "$left" -gt 0 ] && [ ! -e cancel-on-end ]; do
        sleep 1
        left=$((left - 1))
    done
    if [ -e cancel-on-end ]; then
        note 'the command for the end was cancelled'
        echo cancelled >on-end
    else
        note "at the end: $on_end"
        logged ending
        code=$?
        note "the command for the end ended with exit code $code"
        echo "$code" >on-end
    fi
fi
[ -z "$pipes" ] || rm -rf "$pipes"
