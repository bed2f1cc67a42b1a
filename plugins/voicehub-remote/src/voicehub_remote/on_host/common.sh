# Goes in front of the other scripts. $root and $run are set above.
set -u
folder=$root/runs/$run

pause() { sleep "${1:-0.1}" 2>/dev/null || sleep 1; }

content() { cat "$folder/$1" 2>/dev/null || :; }

# One tmux server a run. Two runs of one name below two roots are two servers, and so are those of
# two users, whose sockets lie in folders of their own.
socket() { printf 'voicehub-%s-%s' "$run" "$(cd "$root" && pwd -P | cksum | cut -d ' ' -f 1)"; }

in_tmux() { tmux -L "$(socket)" has-session -t "=$run" 2>/dev/null; }

command_of() { tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null || ps -p "$1" -o args= 2>/dev/null; }

# Whether the process whose number file $1 holds is there and has $2 in its command: after a restart
# of the host the number may be that of another one.
lives() {
    process=$(content "$1")
    [ -n "$process" ] && kill -0 "$process" 2>/dev/null || return 1
    case $(command_of "$process") in *"$2"*) return 0 ;; esac
    return 1
}

# none: never started. running. ending: the trainer is done, --on-end is not. ended: with an exit
# code. orphan: the trainer runs, and what records its end does not. lost: neither does, and there
# is no exit code. The socket of tmux may be gone, as /tmp is cleaned at times: the shell counts.
state() {
    if [ ! -f "$folder/started" ]; then
        echo none
    elif in_tmux || lives shell run.sh; then
        if [ -f "$folder/exit" ]; then echo ending; else echo running; fi
    elif [ -f "$folder/exit" ]; then
        echo ended
    elif lives pid '-m voicehub'; then
        echo orphan
    elif [ -f "$folder/exit" ]; then # it was written while we looked
        echo ended
    else
        echo lost
    fi
}

# Lines NAME=VALUE about the run. `begin` is the byte of the log where this attempt begins, or
# where its last $lines lines do, if that is set.
tell_state() {
    echo "run=$run"
    echo "state=$(state)"
    echo "code=$(content exit | tr -d ' ')"
    echo "attempt=$(content attempt)"
    echo "started=$(content started)"
    echo "ended=$(content ended)"
    echo "pid=$(content pid)"
    echo "on_end=$(content on-end)"
    echo "preset=$(content preset)"
    echo "output=$(content output)"
    [ -f "$folder/log" ] || return 0
    size=$(($(wc -c <"$folder/log")))
    offset=$(content offset)
    offset=$((${offset:-0})) # none yet, where the attempt is just beginning
    echo "log_bytes=$size"
    if [ -z "${lines-}" ]; then
        echo "begin=$offset"
        return 0
    fi
    logged_now() { tail -c "+$((offset + 1))" "$folder/log" | head -c "$((size - offset))"; }
    echo "begin=$((size - $(logged_now | tail -n "$lines" | wc -c)))"
    echo "lines=$(($(logged_now | wc -l)))"
}
