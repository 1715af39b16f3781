#!/bin/sh
# Spark standalone: a master and workers with a shared secret and encrypted connections. Its pages have no password that
# a browser could be asked for, so nobody gets in; what they show is in the log.
settings() {
    need pyspark pyspark
    command -v java > /dev/null || fail "there is no java on $(hostname), which Spark needs; install it (default-jre-headless)"
    [ -n "$SPARK_HOME" ] || SPARK_HOME=$(python3 -c 'import pyspark; print(pyspark.__path__[0])')
    SPARK_CONF_DIR=$folder/conf SPARK_LOCAL_IP=$address SPARK_NO_DAEMONIZE=1
    export SPARK_HOME SPARK_CONF_DIR SPARK_LOCAL_IP SPARK_NO_DAEMONIZE
}
start_head() {
    settings
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
    mkdir -p "$folder/conf"
    cat > "$folder/conf/spark-defaults.conf" <<CONF
spark.master spark://$address:$port
spark.authenticate true
spark.authenticate.secret $(secret)
spark.network.crypto.enabled true
spark.ui.enabled false
spark.ui.killEnabled false
spark.master.rest.enabled false
spark.ui.filters org.apache.spark.ui.JWSFilter
spark.org.apache.spark.ui.JWSFilter.param.secretKey $(secret)
CONF
    cat > "$folder/connect.py" <<PYTHON
import os
os.environ["SPARK_CONF_DIR"] = "$folder/conf"
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
PYTHON
    { "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master --host "$address" --port "$port" --webui-port 0 \
        --properties-file "$folder/conf/spark-defaults.conf" 2>&1; echo ended; } | while read -r line; do
        echo "$line"
        case $line in
        *"New state: ALIVE"*) echo "spark://$address:$port" > "$folder/endpoint"; ready ;;
        ended) exit 1 ;;
        esac
    done
}
start_worker() {
    settings
    own=$(mktemp -d /tmp/acequia-spark-XXXXXX) || exit 1
    trap 'rm -rf "$own"' EXIT
    trap 'exit 1' TERM
    memory=$((${ACEQUIA_MEM_PER_NODE:-1024} * 9 / 10))
    [ $memory -ge 512 ] || memory=512
    { "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker --host "$address" --webui-port 0 --cores "$cpus" \
        --memory "${memory}m" --work-dir "$own" --properties-file "$folder/conf/spark-defaults.conf" "$endpoint" 2>&1; echo ended; } |
        while read -r line; do
            echo "$line"
            case $line in
            *"Successfully registered with master"*) ready ;;
            ended) exit 1 ;;
            esac
        done
    exit 1
}
cluster_main "$@"
