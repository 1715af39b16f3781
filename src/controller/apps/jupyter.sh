#!/bin/sh
# Starts JupyterLab, or the classic notebook, on a socket that only its user can open: whoever comes was checked by the
# controller, so there is no token. The checks of Host are the controller's, those of Origin and XSRF stay on.
say() { echo "acequia: $*" >&2; }
enter() {
    [ -x "$1/bin/python" ] || { say "$1 is not an environment: it has no bin/python"; exit 1; }
    PATH=$1/bin:$PATH
    export PATH
    if [ -f "$1/pyvenv.cfg" ]; then VIRTUAL_ENV=$1; export VIRTUAL_ENV; else CONDA_PREFIX=$1; export CONDA_PREFIX; fi
}
[ -z "$APP_ENVIRONMENT" ] || enter "$APP_ENVIRONMENT"
own=$(mktemp -d) || exit 1
trap : TERM INT  # the server gets it too, saves and ends; then its files are removed
JUPYTER_RUNTIME_DIR=$own/runtime
export JUPYTER_RUNTIME_DIR
# A kernel for each further environment, under the name of its folder, and for each container image. A kernel in an image
# is a container of this job: docker's words start it when it is chosen.
is_image() {  # an unpacked one has a shell, which an environment has not
    case "$1" in
    /* | ./* | ../* | "~"*) [ -f "$1" ] || [ -e "$1/bin/sh" ] || [ -L "$1/bin/sh" ] || [ -e "$1/config.json" ] ;;
    *) [ ! -d "$1" ] ;;
    esac
}
add_image() {
    acequia=$(printf '%s' "$ACEQUIA_BOX_OPTIONS" | tr '\t' '\n' | sed -n '/^--tools$/{n;p;q;}')
    [ -x "$acequia" ] || { say "$1: kernels in images need containers, which this job or node does not have"; return 1; }
    name=$(basename "$1" | tr -c 'A-Za-z0-9._\n' -)
    mkdir -p "$own/data/kernels/$name"
    python3 - "$own/data/kernels/$name/kernel.json" "$1" "$acequia" <<'PYTHON'
import json, sys
to, image, acequia = sys.argv[1:]
start = """p=$(command -v python || command -v python3) || { echo "acequia: the image of this kernel has no python" >&2; exit 1; }
"$p" -c "import ipykernel" 2> /dev/null || { echo "acequia: the image of this kernel has no ipykernel; add it: pip install ipykernel" >&2; exit 1; }
exec "$p" -m ipykernel_launcher -f "$0\""""
with open(to, "w") as f:
    json.dump({"argv": ["sh", "-c", 'exec "$0" docker run --rm --gpus all -w "$PWD" --entrypoint "" "$1" sh -c "$2" "$3"', acequia, image, start,
                        "{connection_file}"],
               "display_name": image, "language": "python", "interrupt_mode": "message"}, f)
PYTHON
}
IFS=,
for e in $APP_KERNELS; do
    if is_image "$e"; then
        add_image "$e" || { rm -rf "$own"; exit 1; }
        continue
    fi
    [ -x "$e/bin/python" ] || { say "$e is neither an environment, it has no bin/python, nor an image"; rm -rf "$own"; exit 1; }
    "$e/bin/python" -c 'import ipykernel' 2> /dev/null ||
        { say "$e has no kernel for notebooks; install one: $e/bin/python -m pip install ipykernel"; rm -rf "$own"; exit 1; }
    mkdir -p "$own/data/kernels/$(basename "$e")"
    "$e/bin/python" - "$own/data/kernels/$(basename "$e")/kernel.json" "$(basename "$e")" <<'PYTHON'
import json, sys
with open(sys.argv[1], "w") as f:
    json.dump({"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
               "display_name": sys.argv[2], "language": "python"}, f)
PYTHON
done
unset IFS
JUPYTER_PATH=$own/data${JUPYTER_PATH:+:$JUPYTER_PATH}
export JUPYTER_PATH
if command -v jupyter-lab > /dev/null; then program=jupyter-lab class=ServerApp
elif command -v jupyter-notebook > /dev/null; then program=jupyter-notebook class=NotebookApp
else
    say "JupyterLab is not installed on $(hostname), or not in the PATH. Make an environment with it once:"
    say "  python3 -m venv ~/jupyter && ~/jupyter/bin/pip install jupyterlab"
    say "and start it with: acequia notebook --environment ~/jupyter"
    rm -rf "$own"
    exit 127
fi
[ "$(id -u)" != 0 ] || root=--allow-root
rm -f "$ACEQUIA_SOCKET"
"$program" --no-browser $root --$class.sock="$ACEQUIA_SOCKET" --$class.token= --$class.password= \
    --$class.allow_remote_access=True --$class.quit_button=False
status=$?
rm -rf "$own" "$ACEQUIA_SOCKET"
exit $status
