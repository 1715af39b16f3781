#!/bin/sh
# VS Code in the browser, by whichever of the two programs is there, on a socket that only its user can open.
rm -f "$ACEQUIA_SOCKET"
umask 077
if command -v code-server > /dev/null; then
    exec code-server --socket "$ACEQUIA_SOCKET" --socket-mode 600 --auth none --disable-telemetry "${APP_FOLDER:-.}"
elif command -v openvscode-server > /dev/null; then
    exec openvscode-server --socket-path "$ACEQUIA_SOCKET" --without-connection-token --telemetry-level off
fi
echo "acequia: neither code-server nor openvscode-server is in the PATH on $(hostname); see https://github.com/coder/code-server" >&2
exit 127
