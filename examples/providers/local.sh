#!/bin/sh
# A provider in sh: its nodes are agents on this machine. Shows all that a program has to do; a cloud's would call the
# cloud's command line where this one starts and stops processes.
#
#   acequia provider add program "$PWD/examples/providers/local.sh" --name local --max 2 -- FOLDER [acequia]
#
# Each question is a line of JSON, and so is each answer. Whoever asks twice by one key must get one node, and `list`
# names every node that is there.
folder=${1:?a folder for the agents} acequia=${2:-acequia}
mkdir -p "$folder"

field() { printf '%s' "$1" | sed -n "s/.*\"$2\":\"\([^\"]*\)\".*/\1/p"; }
alive() { [ -s "$folder/$1/pid" ] && kill -0 "$(cat "$folder/$1/pid")" 2>/dev/null; }
entry() { printf '%s{"key":"%s","handle":"%s","state":"%s"}' "$comma" "$1" "$1" "$2"; comma=,; }

start() { # KEY NODE TOKEN
    alive "$1" && return
    mkdir -p "$folder/$1"
    (umask 077 && printf '%s\n' "$3" > "$folder/$1/token")
    ACEQUIA_HOME="$folder/$1" setsid "$acequia" agent --name "$2" --join "$ACEQUIA_CONTROLLER" \
        --token-file "$folder/$1/token" --cpus 1 --memory 1073741824 \
        > "$folder/$1/log" 2>&1 < /dev/null 3<&- &
    echo $! > "$folder/$1/pid"
}

stop() { # KEY
    alive "$1" && kill "$(cat "$folder/$1/pid")"
    rm -rf "${folder:?}/$1"
}

while IFS= read -r question; do
    id=$(printf '%s' "$question" | sed 's/^{"id":\([0-9]*\),.*/\1/')
    comma=
    printf '{"id":%s,' "$id"
    case $(field "$question" verb) in
    offers) printf '"shapes":[{"name":"local","cpus":1,"memory_bytes":1073741824,"boot_s":2}]' ;;
    list)
        printf '"nodes":['
        for path in "$folder"/*/; do
            key=$(basename "$path")
            alive "$key" && entry "$key" running
        done
        printf ']'
        ;;
    *)
        printf '"nodes":['
        for node in $(printf '%s' "$question" | sed 's/.*"nodes":\[//; s/},{/}\n{/g; s/ //g'); do
            key=$(field "$node" key)
            case $question in
            *'"verb":"start"'*)
                start "$key" "$(field "$node" node)" "$(field "$node" token)"
                entry "$key" running
                ;;
            *)
                stop "$key"
                entry "$key" ended
                ;;
            esac
        done
        printf ']'
        ;;
    esac
    printf '}\n'
done
