
# What clap's script can't know: paths, also those inside containers, and mount points.
_shardfs_with_paths() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command='' word i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word != -* ]]; then
            command=$word
            break
        fi
    done
    # Commands, options and their values.
    if [[ -z $command || $cur == -* || $prev == --?* ]]; then
        _shardfs "$1" "$cur" "$prev"
        if [[ -z $command || $cur == -* || ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} != -* ]]; then
            return
        fi
    fi
    COMPREPLY=()
    case $command in
        umount | unmount | status) _shardfs_mount_points "$cur" ;;
        ls | cat | cp | export | info | verify) _shardfs_paths "$1" "$cur" ;;
        mount) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); compopt -o filenames 2>/dev/null ;;
        help | completions) _shardfs "$1" "$cur" "$prev" ;;
        *) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); compopt -o filenames 2>/dev/null ;;
    esac
}

# Where a shardfs is mounted. The table is read, no mount is asked.
_shardfs_mount_points() {
    local place kind rest
    while read -r _ place kind rest; do
        printf -v place '%b' "${place//\\0/\\00}"
        if [[ $kind == fuse.shardfs && $place == "$1"* ]]; then
            COMPREPLY+=("$place")
        fi
    done < /proc/self/mounts
    compopt -o filenames 2>/dev/null
}

# Files of the disk, and what is inside containers.
_shardfs_paths() {
    local cur=$2 folder name
    compopt -o filenames 2>/dev/null
    folder=${cur%/*}
    if [[ $cur == */* && -n $folder && ! -d $folder && ! -d ${folder/#\~/$HOME} ]]; then
        folder=${folder/#\~/$HOME}
        while IFS= read -r name; do
            if [[ $name == "${cur##*/}"* ]]; then
                COMPREPLY+=("${cur%/*}/$name")
            fi
        done < <("$1" ls -p -- "$folder" 2>/dev/null)
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
    # A container may be all that was wanted, or a folder to go into: no blank behind it, nor behind a folder in one.
    if [[ ${#COMPREPLY[@]} -eq 1 ]]; then
        case ${COMPREPLY[0]} in
            */ | *.wshard | *.shard | *.kas | *.trees | *.kast | *.kdb | *.idv | *.safetensors | *.gguf | *.nc) compopt -o nospace 2>/dev/null ;;
        esac
    fi
}

complete -F _shardfs_with_paths -o nosort -o bashdefault -o default shardfs 2>/dev/null ||
    complete -F _shardfs_with_paths -o bashdefault -o default shardfs
