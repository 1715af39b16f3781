#!/bin/sh
command -v tensorboard > /dev/null || { echo "acequia: tensorboard is not in the PATH on $(hostname); install it: pip install tensorboard" >&2; exit 127; }
exec tensorboard --logdir "$APP_LOGDIR" --host 127.0.0.1 --port "$ACEQUIA_PORT"
