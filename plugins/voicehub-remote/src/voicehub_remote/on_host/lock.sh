# One deploy at a time: $root/deploying holds the number of this shell until standard input ends,
# which it does when the other side is done or gone.
lock=$root/deploying
mkdir -p "$root" || exit 1
tries=0
until (set -C; echo "$$" >"$lock") 2>/dev/null; do
    other=$(cat "$lock" 2>/dev/null)
    if [ -n "$other" ] && kill -0 "$other" 2>/dev/null; then
        case $(command_of "$other") in *deploying*) exit 5 ;; esac
    fi
    tries=$((tries + 1))
    # Of one that is gone. An empty one may be about to be written.
    if [ -n "$other" ] || [ "$tries" -gt 3 ]; then rm -f "$lock"; fi
    [ "$tries" -lt 8 ] || { echo "$$" >"$lock" || exit 1; } # which says why it cannot
    pause
done
trap 'rm -f "$lock"' EXIT
trap 'exit 1' HUP INT TERM PIPE
echo voicehub-held
cat >/dev/null
