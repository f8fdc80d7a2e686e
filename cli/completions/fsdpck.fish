# Completion of fsdpck in fish. The candidates come from the program itself.
function __fsdpck_complete
    set -l words (commandline -opc)
    set -l current (string unescape -- (commandline -ct))
    for line in ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = :files
            if string match -q -- '--*=*' "$current"
                set -l before (string replace -r '=.*' = -- "$current")
                for path in (__fish_complete_path (string replace -r '^[^=]*=' '' -- "$current"))
                    printf '%s%s\n' "$before" "$path"
                end
            else
                __fish_complete_path "$current"
            end
        else
            printf '%s\n' "$line"
        end
    end
end
complete -c fsdpck -f -a '(__fsdpck_complete)'
