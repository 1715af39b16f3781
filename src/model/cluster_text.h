// The text of cluster.sh, made when the program is built.
#pragma once

extern const char app_cluster_text[];
