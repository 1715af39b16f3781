#!/bin/sh
# VS Code in the browser, by whichever of the two programs is there, on a socket that only its user can open. The folder
# that is asked for is opened, and not the one of the last time.
rm -f "$ACEQUIA_SOCKET"
umask 077
folder=${APP_FOLDER:-$PWD}
if [ ! -d "$folder" ]; then
    echo "acequia: the folder $folder does not exist on $(hostname)" >&2
    exit 1
fi
if command -v code-server > /dev/null; then
    exec code-server --socket "$ACEQUIA_SOCKET" --socket-mode 600 --auth none --disable-telemetry --ignore-last-opened "$folder"
elif command -v openvscode-server > /dev/null; then
    exec openvscode-server --socket-path "$ACEQUIA_SOCKET" --without-connection-token --telemetry-level off --default-folder "$folder"
fi
echo "acequia: neither code-server nor openvscode-server is in the PATH on $(hostname). Install one of them, such as with" >&2
echo "  npm install --global code-server" >&2
echo "and the Node that it asks for, or start the app in an image that has one: acequia app start vscode container=IMAGE" >&2
exit 127
