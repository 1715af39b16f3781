#!/bin/sh
command -v streamlit > /dev/null || { echo "acequia: streamlit is not in the PATH on $(hostname); install it: pip install streamlit" >&2; exit 127; }
exec streamlit run "$APP_FILE" --server.address 127.0.0.1 --server.port "$ACEQUIA_PORT" --server.headless true --browser.gatherUsageStats false
