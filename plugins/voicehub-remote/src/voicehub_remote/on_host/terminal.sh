# Attaches the terminal that ssh brings to the tmux of the run.
in_tmux || {
    echo "the run $run is not in tmux (any more)" >&2
    exit 1
}
exec tmux -L "$(socket)" attach-session -t "=$run"
