# Writes the size of the log, and then its last $lines lines; all of them for 0.
[ -f "$folder/log" ] || exit 0
size=$(($(wc -c <"$folder/log")))
echo "$size"
if [ "$lines" = 0 ]; then
    head -c "$size" "$folder/log"
else
    head -c "$size" "$folder/log" | tail -n "$lines"
fi
