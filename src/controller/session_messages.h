// The text messages of WebSocket sessions, each described by a table. A client's first message asks for something, its
// later ones steer it; what the controller sends is one of the answers that the route names. A message has no field
// that says which one it is: its fields tell.
#pragma once
#include "base/schema.h"
#include "model/message.h"

// --- from the client ---

struct request_exec {
    LIST(const char *) argv;
    LIST(const char *) environment;
    const char *workdir, *key;
    bool pty, resume;
    uint32_t rows, columns;
    int64_t node;
    LIST(uint64_t) from;
    uint64_t epoch;
    uint32_t attempt;
};
extern const struct schema request_exec_schema;

struct request_attach {  // of a client that keeps positions
    bool resume;
    LIST(uint64_t) from;
    uint32_t attempt;
    uint64_t epoch;
    LIST(const char *) nodes;
};
extern const struct schema request_attach_schema;

struct request_session {  // of run, attach and logs, after the first message
    LIST(uint32_t) resize;
    LIST(uint64_t) ack;
    uint32_t signal;
    bool cancel, ping;
};
extern const struct schema request_session_schema;

struct request_step {
    LIST(const char *) argv;
    LIST(const char *) environment;
    const char *key, *name, *workdir, *container, *container_mounts, *container_workdir;
    const char *container_name;
    const char *nodelist, *exclude, *distribution, *gpu_bind, *cpu_bind, *output, *error, *input;
    uint32_t tasks, nodes, tasks_per_node, cpus_per_task;
    uint64_t memory_per_node_bytes, memory_per_cpu_bytes;
    uint32_t gpus_milli, gpus_per_node_milli, gpus_per_task_milli;
    uint32_t time_limit_s, wait_s, input_rank, rows, columns, umask, attach, lease_s;
    bool exact, overlap, overcommit, immediate, kill_on_bad_exit, append, pty, resume;
    LIST(uint64_t) from;
    uint64_t epoch;
    uint32_t attempt;
    enum step_mpi mpi;
    uint64_t given[1];
};
extern const struct schema request_step_schema;

struct request_allocate {
    struct request_submit *submit;
    struct request_step *step;
    uint64_t job;
};
extern const struct schema request_allocate_schema;

struct request_step_session {  // of step and allocate, after the first message
    LIST(uint32_t) resize;
    LIST(uint64_t) ack;
    uint32_t signal, give_back_signal;
    int32_t give_back;
    bool cancel, ping, received;
    uint64_t given[1];
};
extern const struct schema request_step_session_schema;

// --- to the client ---

struct answer_session_job {
    uint64_t id;
    bool named_again;
};
extern const struct schema answer_session_job_schema;

struct answer_session_nodes {
    uint32_t nodes, attempt;
    uint64_t epoch;
    LIST(const char *) names;
};
extern const struct schema answer_session_nodes_schema;

struct answer_session_state {
    unsigned state;
};
extern const struct schema answer_session_state_schema;

struct answer_session_input {
    uint64_t input;
};
extern const struct schema answer_session_input_schema;

struct answer_session_position {
    uint64_t input_at, input_left;
    bool input_closed;
};
extern const struct schema answer_session_position_schema;

struct answer_session_file {
    uint64_t file, at;
};
extern const struct schema answer_session_file_schema;

struct answer_session_time {
    int64_t time_ms;
};
extern const struct schema answer_session_time_schema;

struct answer_session_end {
    uint64_t id;
    unsigned state;
    int32_t exit_code;
    uint32_t exit_signal;
    const char *reason;
};
extern const struct schema answer_session_end_schema;

struct answer_step_state {
    unsigned state, reason;
};
extern const struct schema answer_step_state_schema;

struct answer_step_waiting {
    const char *waiting;
};
extern const struct schema answer_step_waiting_schema;

struct answer_step_node_ended {
    const char *node_ended;
};
extern const struct schema answer_step_node_ended_schema;

struct answer_step_started {
    uint32_t step, tasks;
    const char *nodes;
    uint64_t epoch;
    uint32_t attempt;
};
extern const struct schema answer_step_started_schema;

struct answer_step_from {
    uint64_t input_from;
    bool input_closed;
};
extern const struct schema answer_step_from_schema;

struct answer_step_at {
    uint64_t input_at;
    bool input_closed;
};
extern const struct schema answer_step_at_schema;

struct answer_step_missing {
    const char *missing, *node;
};
extern const struct schema answer_step_missing_schema;

struct port_eof {  // both ways
    bool eof;
};
extern const struct schema port_eof_schema;
struct answer_step_pong {
    bool pong;
};
extern const struct schema answer_step_pong_schema;

struct answer_step_failed {
    const char *tasks;
    int32_t exit_code;
    uint32_t exit_signal;
};
struct answer_step_node {
    const char *node;
    int32_t exit_code;
    uint32_t exit_signal, task;
    const char *error, *tasks;
    LIST(struct answer_step_failed) failed;
    uint64_t output_bytes;
};
struct answer_step_result {
    int32_t exit_code;
    uint32_t exit_signal;
    LIST(struct answer_step_node) nodes;
};
extern const struct schema answer_step_result_schema;
