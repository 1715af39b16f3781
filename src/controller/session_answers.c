// The tables of what clients of WebSocket sessions are sent.
#include "model/job.h"
#include "session_messages.h"

static const struct field job_fields[] = {
    FIELD(1, struct answer_session_job, id, "The job was submitted."),
    FIELD(2, struct answer_session_job, named_again, "A client that comes back may name the job it had.")};
const struct schema answer_session_job_schema = SCHEMA(struct answer_session_job, "a new job", job_fields);

static const struct field nodes_fields[] = {
    FIELD(1, struct answer_session_nodes, nodes, "The job has this many nodes."),
    FIELD(2, struct answer_session_nodes, attempt, "The attempt whose output follows, from its beginning."),
    FIELD(3, struct answer_session_nodes, epoch,
          "The epoch of that attempt: after a restore its number alone does not name it."),
    FIELD_LIST(4, struct answer_session_nodes, names, "Its nodes, in the order of the streams.")};
const struct schema answer_session_nodes_schema = SCHEMA(struct answer_session_nodes, "the nodes", nodes_fields);

static const struct field state_fields[] = {
    FIELD_WORDS_OPEN(1, struct answer_session_state, state, job_state_words, "Its state has changed.")};
const struct schema answer_session_state_schema = SCHEMA(struct answer_session_state, "a change", state_fields);

static const struct field input_fields[] = {
    FIELD(1, struct answer_session_input, input, "This many more bytes of the input have been forwarded.")};
const struct schema answer_session_input_schema = SCHEMA(struct answer_session_input, "credit", input_fields);

#define S struct answer_session_position
static const struct field position_fields[] = {
    FIELD(1, S, input_at, "The client sends its input from this byte on."),
    FIELD(2, S, input_left, "Bytes before this one will not be asked for again."),
    FIELD(3, S, input_closed, "The input is closed."),
};
const struct schema answer_session_position_schema = SCHEMA(S, "a position", position_fields);
#undef S

#define S struct answer_session_file
static const struct field file_fields[] = {
    FIELD(1, S, file, "The output goes on in this file, another one or one that was emptied."),
    FIELD(2, S, at, "And at this position in it."),
};
const struct schema answer_session_file_schema = SCHEMA(S, "a place", file_fields);
#undef S
static const struct field time_fields[] = {
    FIELD(1, struct answer_session_time, time_ms,
          "When the output that follows was written, by the node's clock; 0: not known.")};
const struct schema answer_session_time_schema = SCHEMA(struct answer_session_time, "a time", time_fields);

#define S struct answer_session_end
static const struct field end_fields[] = {
    FIELD(1, S, id, "The job."),
    FIELD_WORDS_OPEN(2, S, state, job_state_words, "Its state."),
    FIELD(3, S, exit_code, "Exit code."),
    FIELD(4, S, exit_signal, "Signal that ended it; 0: none."),
    FIELD(5, S, reason, "Why it ended."),
};
const struct schema answer_session_end_schema = SCHEMA(S, "the end of a job", end_fields);
#undef S

#define S struct answer_step_state
static const struct field step_state_fields[] = {
    FIELD_WORDS_OPEN(1, S, state, job_state_words, "State of the allocation."),
    FIELD_WORDS_OPEN(2, S, reason, job_reason_words, "Why it waits."),
};
const struct schema answer_step_state_schema = SCHEMA(S, "a change", step_state_fields);
#undef S

static const struct field waiting_fields[] = {
    FIELD(1, struct answer_step_waiting, waiting, "There is no room for the step in the job yet: why.")};
const struct schema answer_step_waiting_schema = SCHEMA(struct answer_step_waiting, "a notice", waiting_fields);

static const struct field node_ended_fields[] = {
    FIELD(1, struct answer_step_node_ended, node_ended,
          "The step has ended on this node; it may go on on others.")};
const struct schema answer_step_node_ended_schema =
    SCHEMA(struct answer_step_node_ended, "a notice", node_ended_fields);

#define S struct answer_step_started
static const struct field started_fields[] = {
    FIELD(1, S, step, "Number of the step, from 0."),
    FIELD(2, S, tasks, "Its tasks."),
    FIELD(3, S, nodes, "Its nodes, as n[1-4]."),
    FIELD(4, S, epoch,
          "Tells it from a step of the same number before a restore; a client that comes back names it."),
    FIELD(5, S, attempt, "The attempt of the job that it is of."),
};
const struct schema answer_step_started_schema = SCHEMA(S, "a step", started_fields);
#undef S

#define CLOSED "The input of all tasks is closed."
#define S struct answer_step_from
static const struct field from_fields[] = {
    FIELD(1, S, input_from, "The client sends its input again, from this byte on."),
    FIELD(2, S, input_closed, CLOSED),
};
const struct schema answer_step_from_schema = SCHEMA(S, "a position", from_fields);
#undef S

#define S struct answer_step_at
static const struct field at_fields[] = {
    FIELD(1, S, input_at, "Bytes before this one have been taken."),
    FIELD(2, S, input_closed, CLOSED),
};
const struct schema answer_step_at_schema = SCHEMA(S, "a position", at_fields);
#undef S

static const struct field missing_fields[] = {
    FIELD(1, struct answer_step_missing, missing, "Which part of the output could not be sent, and why."),
    FIELD(2, struct answer_step_missing, node, "Of which node.")};
const struct schema answer_step_missing_schema = SCHEMA(struct answer_step_missing, "a notice", missing_fields);

static const struct field port_eof_fields[] = {
    FIELD(1, struct port_eof, eof, "true: this side sends no more bytes.")};
const struct schema port_eof_schema = SCHEMA(struct port_eof, "the end of one direction", port_eof_fields);

static const struct field pong_fields[] = {FIELD(1, struct answer_step_pong, pong, "true: the answer to a ping.")};
const struct schema answer_step_pong_schema = SCHEMA(struct answer_step_pong, "a pong", pong_fields);

#define S struct answer_step_failed
static const struct field failed_fields[] = {
    FIELD(1, S, tasks, "Ranks of tasks that ended alike, as 0,2-3."),
    FIELD(2, S, exit_code, "Their exit code."),
    FIELD(3, S, exit_signal, "The signal that ended them; 0: none."),
};
static const struct schema failed_schema = SCHEMA(S, "tasks that failed", failed_fields);
#undef S

#define S struct answer_step_node
static const struct field step_node_fields[] = {
    FIELD(1, S, node, "Node."),
    FIELD(2, S, exit_code, "Exit code of its worst task."),
    FIELD(3, S, exit_signal, "Signal that ended it; 0: none."),
    FIELD(4, S, task, "Rank of that task."),
    FIELD(5, S, error, "Why it could not run or was ended; null: it ended by itself."),
    FIELD(6, S, tasks, "Ranks of the tasks there, as 0,2-3."),
    FIELD_LIST_SUB(7, S, failed, &failed_schema, "Tasks that failed, those that ended alike together."),
    FIELD(8, S, output_bytes, "Bytes that its tasks have printed to streams; 0: not known."),
};
static const struct schema step_node_schema = SCHEMA(S, "the end of a step on a node", step_node_fields);
#undef S

#define S struct answer_step_result
static const struct field step_end_fields[] = {
    FIELD(1, S, exit_code, "Exit code of the worst task."),
    FIELD(2, S, exit_signal, "Signal that ended it; 0: none."),
    FIELD_LIST_SUB(3, S, nodes, &step_node_schema, "By node."),
};
const struct schema answer_step_result_schema = SCHEMA(S, "the end of a step", step_end_fields);
#undef S
