#!/bin/sh
# Gradio takes its address from these variables.
GRADIO_SERVER_NAME=127.0.0.1 GRADIO_SERVER_PORT=$ACEQUIA_PORT GRADIO_ANALYTICS_ENABLED=False
export GRADIO_SERVER_NAME GRADIO_SERVER_PORT GRADIO_ANALYTICS_ENABLED
python=${APP_PYTHON:-python3}
command -v "$python" > /dev/null || { echo "acequia: there is no $python on $(hostname)" >&2; exit 127; }
"$python" -c 'import importlib.util, sys; s = importlib.util.find_spec("gradio"); sys.exit(not s or not s.origin)' ||
    { echo "acequia: $python on $(hostname) has no gradio; install it: $python -m pip install gradio" >&2; exit 127; }
exec "$python" "$APP_FILE"
