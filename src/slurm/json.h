// --json of squeue, sacct and sinfo.
#pragma once
#include "node_row.h"
#include "step_row.h"

// {"meta":…,"errors":[],"LIST":[ … ]}
void slurm_json_open(struct json_writer *w, const char *plugin, const char *list);
void slurm_json_close(struct json_writer *w);
void slurm_job_json(const struct sjob *j, const char *cluster,
                    struct json_writer *w);  // needs SJOB_JSON_FIELDS
// Needs STEP_FIELDS and SJOB_JSON_FIELDS.
void slurm_job_history_json(const struct sjob *j, const char *cluster, const sstep_vec *steps,
                            struct json_writer *w);
void slurm_node_json(const struct snode *n, struct json_writer *w);
