# Standard input is a program with which an interpreter tells of itself. Each of "$@" that is there
# runs it, until one has a torch with working CUDA.
probe=$(cat)
for python; do
    command -v "$python" >/dev/null 2>&1 || continue
    said=$("$python" -c "$probe" 2>/dev/null </dev/null) || :
    case $said in
    *'voicehub-probe {'*) printf '%s\n' "$said" ;;
    *) printf 'voicehub-probe {"python": "%s"}\n' "$python" ;;
    esac
    case $said in *'"cuda": true'*) break ;; esac
done
