# Ends a run. $now: empty to let it save a checkpoint first, `yes` to kill it.
descendants() {
    if ps -A -o pid= -o ppid= >/dev/null 2>&1; then
        ps -A -o pid= -o ppid=
    else
        for stat in /proc/[0-9]*/stat; do
            sed 's/^\([0-9]*\) (.*) [A-Z] \([0-9]*\) .*/\1 \2/' "$stat" 2>/dev/null
        done
    fi | awk -v top="$1" '
        { parent[$1] = $2 }
        END {
            for (process in parent) {
                above = process
                while (above in parent && above != top && above > 1) above = parent[above]
                if (above == top) print process
            }
        }'
}

tell_state # as it was before, with the place in the log where what follows begins
case $(state) in
ending) : >"$folder/cancel-on-end" || exit 1 ;;
running | orphan)
    tries=0
    until [ -n "$(content pid)" ] || [ "$tries" -ge 20 ]; do
        tries=$((tries + 1))
        pause
    done
    trainer=$(content pid)
    [ -n "$trainer" ] || {
        echo 'the run has written down no process' >&2
        exit 1
    }
    # One that has ended meanwhile is no failure: the state tells.
    signal=TERM
    [ -z "$now" ] || signal=KILL
    case $signal$(command_of "$trainer") in
    TERM*'-m voicehub'*) kill -INT "$trainer" 2>/dev/null || : ;;
    *) # also where lines of --setup still run
        kill -STOP "$trainer" 2>/dev/null # it starts no more while we look
        kill -s "$signal" $(descendants "$trainer") 2>/dev/null
        kill -CONT "$trainer" 2>/dev/null || :
        ;;
    esac
    ;;
esac
