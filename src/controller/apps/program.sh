#!/bin/sh
# The program listens on $ACEQUIA_PORT.
eval "$APP_COMMAND"
