# Tells about one run, or about all of them where $run is empty, with an empty line after each.
if [ -n "$run" ]; then
    tell_state
    exit 0
fi
[ -d "$root/runs" ] || exit 0
ls -1 "$root/runs" | while IFS= read -r run; do
    folder=$root/runs/$run
    [ -f "$folder/started" ] || continue
    tell_state
    echo
done
