// The tables of what clients of WebSocket sessions send.
#include "session_messages.h"

#include "model/event.h"
#include "model/job.h"
#include "requests.h"

enum {
    ROWS_MAX = 10000,
    CPUS_MAX = 65536,
    SIGNAL_MAX = 64,
    UMASK_MAX = 0777,
    STEP_ATTACH_MAX = UINT32_MAX - 1,
    LEASE_MAX_S = 7 * 86400
};

#define EPOCH "With resume: the epoch of the step that the client was told; another step is not shown to it."
#define ATTEMPT "With epoch: the attempt of the job that the step is of."
#define S struct request_exec
static const struct field exec_fields[] = {
    FIELD_LIST(1, S, argv, "The command and its arguments; none: the user's shell."),
    FIELD_LIST(2, S, environment, "Variables, as NAME=value, added to those of the job."),
    FIELD(3, S, workdir, "Its working directory; else the job's."),
    FIELD(4, S, pty, "It gets a terminal."),
    FIELD(5, S, rows, "Of the terminal; 24 unless given.", .min = 0, .max = ROWS_MAX),
    FIELD(6, S, columns, "Of the terminal; 80 unless given.", .min = 0, .max = ROWS_MAX),
    FIELD(7, S, node, "Number of the node in the job, from 0."),
    FIELD(8, S, key, "Idempotency key: a client that was cut off sends the same request again and goes on."),
    FIELD(9, S, resume,
          "The client was cut off: also a command that has ended meanwhile is found by its key."),
    FIELD_LIST(10, S, from, "Position in the output up to which the client has it.", .min = 0,
               .max = INT64_MAX),
    FIELD(11, S, epoch, EPOCH, .min = 0, .max = INT64_MAX),
    FIELD(12, S, attempt, ATTEMPT),
};
const struct schema request_exec_schema = SCHEMA(S, "a command", exec_fields);
#undef S

#define S struct request_attach
static const struct field attach_fields[] = {
    FIELD(1, S, resume,
          "The client was cut off: it also gets the rest of the output of a job that has ended."),
    FIELD_LIST(2, S, from,
               "Positions up to which the client has each stream: output and error of each node in turn.",
               .min = 0, .max = INT64_MAX),
    FIELD(3, S, attempt, "The attempt whose output that is; of another one everything is sent."),
    FIELD(4, S, epoch, "The epoch of that attempt: after a restore its number alone does not name it.", .min = 0,
          .max = INT64_MAX),
    FIELD_LIST(5, S, nodes, "The nodes that the positions are of, as the client was told; without it, those of now."),
};
const struct schema request_attach_schema = SCHEMA(S, "positions", attach_fields);
#undef S

#define RESIZE "New size of the terminal: rows and columns."
#define S struct request_session
static const struct field session_fields[] = {
    FIELD_LIST(1, S, resize, RESIZE, .min = 0, .max = ROWS_MAX),
    FIELD(2, S, signal, "Sends this signal to the job.", .min = 0, .max = SIGNAL_MAX),
    FIELD(3, S, cancel, "Cancels the job."),
    FIELD(4, S, ping, "Asks for a pong: the connection still works."),
    FIELD_LIST(5, S, ack, "Positions in each stream that the client will not ask for again."),
};
const struct schema request_session_schema = SCHEMA(S, "a message", session_fields);
#undef S

#define S struct request_step
static const struct field step_fields[] = {
    FIELD_LIST(1, S, argv, "The command and its arguments; may be empty with pty."),
    FIELD_LIST(2, S, environment, "Its environment, as NAME=value."),
    FIELD(3, S, key, "Idempotency key: a client that was cut off sends the same request again and goes on."),
    FIELD(4, S, name, "Name of the step."),
    FIELD(5, S, workdir, "Working directory; else the job's."),
    FIELD(6, S, container, "Container image; else the job's."),
    FIELD(7, S, container_mounts, "Folders that the container sees."),
    FIELD(8, S, container_workdir, "Working directory in the container."),
    FIELD(46, S, container_name,
          "A container that is kept, by name; made from the image when there is none."),
    FIELD(9, S, nodelist, "Only these nodes of the job, as n[1-4]."),
    FIELD(10, S, exclude, "Not these nodes."),
    FIELD(11, S, distribution, "How tasks are laid out over nodes, as Slurm's --distribution."),
    FIELD(12, S, gpu_bind, "Which GPUs each task sees, as Slurm's --gpu-bind."),
    FIELD(13, S, output, "File for standard output on the nodes; else it is sent."),
    FIELD(14, S, error, "File for standard error on the nodes; else it is sent."),
    FIELD(15, S, input, "File for standard input on the nodes; else it is received."),
    FIELD(16, S, tasks, "Tasks; unless given as many as nodes and tasks_per_node make, else the job's."),
    FIELD(17, S, nodes, "Nodes; 0: as few as needed."),
    FIELD(18, S, tasks_per_node, "Tasks on each node."),
    FIELD(19, S, cpus_per_task, "CPUs of each task.", .min = 0, .max = CPUS_MAX),
    FIELD(20, S, memory_per_node_bytes, "Memory on each node; 0: what the job has.", .min = 0,
          .max = INT64_MAX),
    FIELD(21, S, memory_per_cpu_bytes, "Memory for each CPU.", .min = 0, .max = INT64_MAX),
    FIELD(22, S, gpus_milli, "GPUs in all, in thousandths."),
    FIELD(23, S, gpus_per_node_milli, "GPUs on each node, in thousandths."),
    FIELD(24, S, gpus_per_task_milli, "GPUs of each task, in thousandths."),
    FIELD(25, S, time_limit_s, "Seconds it may run; 0: as long as the job."),
    FIELD(26, S, wait_s, "Seconds after the end of the first task in which the others may run; 0: no limit."),
    FIELD(27, S, input_rank, "1 + the rank of the only task that gets input; 0: all do."),
    FIELD(28, S, rows, "Of the terminal.", .min = 0, .max = ROWS_MAX),
    FIELD(29, S, columns, "Of the terminal.", .min = 0, .max = ROWS_MAX),
    FIELD(30, S, umask, "Of its processes; else the job's.", .min = 0, .max = UMASK_MAX),
    FIELD(31, S, attach, "Watches this step, counted from 0, instead of starting one.", .min = 0,
          .max = STEP_ATTACH_MAX),
    FIELD(32, S, exact, "It holds only what it asks for; else all that its nodes have in the job."),
    FIELD(33, S, overlap, "It shares what other steps hold."),
    FIELD(34, S, overcommit, "Tasks may share CPUs."),
    FIELD(35, S, immediate, "Refused instead of waiting when there is no room in the job."),
    FIELD(36, S, kill_on_bad_exit, "All tasks end when one fails."),
    FIELD(37, S, append, "Adds to output files instead of replacing them."),
    FIELD(38, S, pty, "The first task gets a terminal."),
    FIELD(39, S, resume, "The client was cut off: also a step that has ended meanwhile is found by its key."),
    FIELD_LIST(40, S, from, "Positions in the output of each node, in order, up to which the client has it.",
               .min = 0, .max = INT64_MAX),
    FIELD(41, S, lease_s,
          "It ends when its client was not connected for so long; 60 with a key unless given, 0: never.",
          .min = 0, .max = LEASE_MAX_S),
    FIELD(42, S, epoch, EPOCH, .min = 0, .max = INT64_MAX),
    FIELD(43, S, attempt, ATTEMPT),
    FIELD_WORDS(44, S, mpi, message_step_mpi_words,
                "What its tasks find each other by when they are an MPI program."),
    FIELD(45, S, cpu_bind, "Which CPUs each task is bound to, as Slurm's --cpu-bind."),
};
const struct schema request_step_schema = SCHEMA_GIVEN(S, "a step", step_fields);
#undef S

#define S struct request_allocate
static const struct field allocate_fields[] = {
    FIELD_SUB(1, S, submit, &request_submit_schema, "The job, with spec.launch steps.", .required = true),
    FIELD_SUB(2, S, step, &request_step_schema,
              "What runs in it; null: nothing, the client starts steps of its own."),
    FIELD(3, S, job,
          "The client was cut off and had this job, which had started: no other one is submitted in its "
          "place."),
};
const struct schema request_allocate_schema = SCHEMA(S, "an allocation", allocate_fields);
#undef S

#define S struct request_step_session
static const struct field step_session_fields[] = {
    FIELD_LIST(1, S, resize, RESIZE, .min = 0, .max = ROWS_MAX),
    FIELD_LIST(2, S, ack,
               "Positions in the output of each node, in order, that the client will not ask for again."),
    FIELD(3, S, signal, "Sends this signal to the tasks; 9 ends the step.", .min = 0, .max = SIGNAL_MAX),
    FIELD(4, S, cancel, "Ends the step, or no longer waits for it."),
    FIELD(5, S, ping, "Asks for a pong: the connection still works."),
    FIELD(6, S, give_back, "Ends the allocation with this exit code."),
    FIELD(7, S, give_back_signal, "And with this signal.", .min = 0, .max = SIGNAL_MAX),
    FIELD(8, S, received, "The client has all output and the end of the step."),
};
const struct schema request_step_session_schema = SCHEMA_GIVEN(S, "a message", step_session_fields);
#undef S
