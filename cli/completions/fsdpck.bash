# Completion of fsdpck in bash. The candidates come from the program itself.
_fsdpck() {
    local words=() word line join= before
    local -i i
    # readline splits words at '='; this joins them again.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == "=" && ${#words[@]} -gt 0 && ${words[-1]} == --* ]]; then
            words[-1]+="="
            join=1
        elif [[ $join ]]; then
            words[-1]+=$word
            join=
        else
            words+=("$word")
        fi
    done
    # What stands before the word that readline replaces.
    before=
    [[ ${words[-1]} == --*=* && $COMP_WORDBREAKS == *=* ]] && before=${words[-1]%%=*}=
    COMPREPLY=()
    compopt +o default +o bashdefault
    while IFS= read -r line; do
        if [[ $line == ":files" ]]; then
            compopt -o default -o bashdefault
            continue
        fi
        line=${line%%$'\t'*}
        COMPREPLY+=("$(printf '%q' "${line#"$before"}")")
    done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o bashdefault -o default -F _fsdpck fsdpck
