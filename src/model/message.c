// Owns the table of messages.
#include "model/message.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "model/file.h"

const char *const message_attempt_state_words[] = {"running", "ended", NULL};
const char *const message_log_source_words[] = {"output", "error", NULL};

#define S struct message_ended
static const struct field ended_fields[] = {
    FIELD(1, S, id, ""),
    FIELD(2, S, attempt, ""),
    FIELD_WORDS_OPEN(3, S, cause, event_end_cause_words, ""),
    FIELD(4, S, exit_code, ""),
    FIELD(5, S, exit_signal, ""),
    FIELD(6, S, reason, ""),
    FIELD_SUB(7, S, usage, &usage_schema, ""),
    FIELD(8, S, start_ms, ""),
    FIELD(9, S, end_ms, ""),
    FIELD(10, S, launch_failed, ""),
    FIELD(11, S, epoch, ""),
};
static const struct schema ended_schema = SCHEMA(S, "ended", ended_fields);
#undef S
#define S struct step_state
static const struct field step_state_fields[] = {FIELD(1, S, step, ""),
                                                 FIELD_SUB(2, S, end, &event_step_end_schema, ""),
                                                 FIELD(3, S, epoch, ""), FIELD(4, S, seq, "")};
static const struct schema step_state_schema = SCHEMA(S, "step_state", step_state_fields);
#undef S
#define S struct message_step
static const struct field step_message_fields[] = {
    FIELD(1, S, id, ""),     FIELD(2, S, attempt, ""), FIELD(3, S, step, ""), FIELD(4, S, stream, ""),
    FIELD(5, S, offset, ""), FIELD(6, S, credit, ""),  FIELD(7, S, tail, ""), FIELD(8, S, epoch, ""),
};
static const struct schema step_message_schema = SCHEMA(S, "step", step_message_fields);
#undef S
#define S struct message_step_hub
static const struct field step_hub_fields[] = {
    FIELD(1, S, id, ""),   FIELD(2, S, attempt, ""), FIELD(3, S, step, ""),    FIELD(4, S, epoch, ""),
    FIELD(5, S, port, ""), FIELD(6, S, key, ""),     FIELD(7, S, address, ""),
};
const struct schema message_step_hub_schema = SCHEMA(S, "step_hub", step_hub_fields);
#undef S
#define S struct message_connect
static const struct field connect_fields[] = {
    FIELD(1, S, id, ""),     FIELD(2, S, attempt, ""), FIELD(3, S, stream, ""),
    FIELD(4, S, credit, ""), FIELD(5, S, port, ""),    FIELD(6, S, epoch, ""),
};
static const struct schema connect_schema = SCHEMA(S, "connect", connect_fields);
#undef S
#define S struct attempt
static const struct field attempt_fields[] = {
    FIELD(1, S, id, ""),
    FIELD(2, S, attempt, ""),
    FIELD_WORDS_OPEN(3, S, state, message_attempt_state_words, ""),
    FIELD_SUB(4, S, end, &ended_schema, ""),
    FIELD(5, S, epoch, ""),
    FIELD(6, S, seq, ""),
    FIELD_LIST_SUB(10, S, steps, &step_state_schema, ""),
    FIELD(11, S, last_step, ""),
    FIELD_WORDS_OPEN(75, S, health, job_health_words, ""),
    FIELD(76, S, health_reason, ""),
};
static const struct schema attempt_schema = SCHEMA(S, "attempt", attempt_fields);
#undef S
#define S struct journal_position
static const struct field position_fields[] = {FIELD(1, S, epoch, ""), FIELD(2, S, seq, ""), FIELD(3, S, next_id, "")};
static const struct schema position_schema = SCHEMA(S, "journal_position", position_fields);
#undef S
#define S struct message_hello
static const struct field hello_fields[] = {
    FIELD_SUB(1, S, node, &node_schema, ""),
    FIELD_LIST_SUB(2, S, attempts, &attempt_schema, ""),
    FIELD(3, S, protocol, ""),
    FIELD(4, S, level, ""),
    FIELD_SUB(5, S, seen, &position_schema, ""),
    FIELD(6, S, term, ""),
};
static const struct schema hello_schema = SCHEMA(S, "hello", hello_fields);
#undef S
#define S struct message_started
static const struct field started_fields[] = {FIELD(1, S, id, ""), FIELD(2, S, attempt, ""),
                                              FIELD(3, S, pid, ""), FIELD(4, S, at_ms, ""),
                                              FIELD(5, S, cpu_ids, "")};
static const struct schema started_schema = SCHEMA(S, "started", started_fields);
#undef S
#define S struct message_health
static const struct field health_message_fields[] = {FIELD(1, S, id, ""), FIELD(2, S, attempt, ""),
                                                     FIELD_WORDS_OPEN(3, S, health, job_health_words, ""),
                                                     FIELD(4, S, reason, "")};
static const struct schema health_message_schema = SCHEMA(S, "health", health_message_fields);
#undef S
#define S struct message_node_look
static const struct field node_look_fields[] = {FIELD(1, S, log, "")};
static const struct schema node_look_schema = SCHEMA(S, "node_look", node_look_fields);
#undef S
#define S struct node_process
static const struct field node_process_fields[] = {
    FIELD(1, S, job, ""),    FIELD(2, S, attempt, ""),   FIELD(3, S, pid, ""),
    FIELD(4, S, parent, ""), FIELD(5, S, threads, ""),   FIELD(6, S, memory_bytes, ""),
    FIELD(7, S, cpu_ms, ""), FIELD(8, S, cpu_known, ""), FIELD(9, S, cpu_milli, ""),
    FIELD(10, S, name, ""),
};
static const struct schema node_process_schema = SCHEMA(S, "node_process", node_process_fields);
#undef S
#define S struct message_node_seen
static const struct field node_seen_fields[] = {FIELD_LIST_SUB(1, S, processes, &node_process_schema, ""),
                                                FIELD(2, S, left_out, ""), FIELD(3, S, log, "")};
static const struct schema node_seen_schema = SCHEMA(S, "node_seen", node_seen_fields);
#undef S
#define S struct message_image
static const struct field image_fields[] = {FIELD(1, S, id, ""), FIELD(2, S, attempt, ""), FIELD(3, S, preparing, ""),
                                            FIELD(4, S, since_ms, "")};
static const struct schema image_schema = SCHEMA(S, "image", image_fields);
#undef S
#define S struct message_node_images
static const struct field node_images_fields[] = {FIELD_LIST_SUB(1, S, images, &node_image_schema, "")};
const struct schema message_node_images_schema = SCHEMA(S, "node_images", node_images_fields);
#undef S
#define S struct message_usage
static const struct field usage_message_fields[] = {FIELD(1, S, id, ""),
                                                    FIELD(2, S, attempt, ""),
                                                    FIELD_SUB(3, S, usage, &usage_schema, ""),
                                                    FIELD(4, S, memory_now_bytes, ""),
                                                    FIELD(5, S, processes, ""),
                                                    FIELD(6, S, preparing, ""),
                                                    FIELD(7, S, progress_known, ""),
                                                    FIELD(8, S, progress_milli, ""),
                                                    FIELD(9, S, progress_text, "")};
static const struct schema usage_message_schema = SCHEMA(S, "usage", usage_message_fields);
#undef S
#define S struct message_stream
static const struct field stream_fields[] = {
    FIELD(1, S, stream, ""),
    FIELD(2, S, fd, ""),
    FIELD(3, S, data, ""),
    FIELD(4, S, eof, ""),
    FIELD(5, S, exit_code, ""),
    FIELD(6, S, exit_signal, ""),
    FIELD(7, S, error, ""),
    FIELD(8, S, credit, ""),
    FIELD(9, S, rows, ""),
    FIELD(10, S, columns, ""),
    FIELD(11, S, task, ""),
    FIELD_SUB(12, S, usage, &usage_schema, ""),
    FIELD_WORDS_OPEN(13, S, cause, event_end_cause_words, ""),
    FIELD_LIST(14, S, exits, ""),
    FIELD(15, S, position, ""),
    FIELD(16, S, input_taken, ""),
    FIELD(17, S, input_waiting, ""),
    FIELD(18, S, offset, ""),
    FIELD(19, S, lost_bytes, ""),
    FIELD(20, S, file, ""),
    FIELD(21, S, resend, ""),
    FIELD(22, S, time_ms, ""),
};
static const struct schema stream_schema = SCHEMA(S, "stream", stream_fields);
#undef S
#define S struct message_welcome
static const struct field welcome_fields[] = {
    FIELD(1, S, heartbeat_s, ""), FIELD(2, S, cluster, ""), FIELD(3, S, usage_every_s, ""), FIELD(4, S, grace_s, ""),
    FIELD(5, S, version, ""),     FIELD(6, S, level, ""),
    FIELD_SUB(7, S, at, &position_schema, "")};
static const struct schema welcome_schema = SCHEMA(S, "welcome", welcome_fields);
#undef S
#define S struct message_workers
static const struct field workers_fields[] = {
    FIELD(1, S, job, ""),      FIELD(2, S, generation, ""),    FIELD(3, S, signal, ""),
    FIELD_LIST(4, S, ids, ""), FIELD_LIST(5, S, attempts, ""), FIELD(6, S, lines, ""),
};
static const struct schema workers_schema = SCHEMA(S, "workers", workers_fields);
#undef S
#define S struct message_secret
static const struct field secret_fields[] = {FIELD(1, S, name, ""), FIELD(2, S, variable, ""), FIELD(3, S, file, ""),
                                             FIELD(4, S, value, "")};
static const struct schema secret_schema = SCHEMA(S, "secret", secret_fields);
#undef S
#define S struct message_secrets
static const struct field secrets_fields[] = {FIELD(1, S, id, ""), FIELD(2, S, attempt, ""),
                                              FIELD_LIST_SUB(3, S, secrets, &secret_schema, "")};
static const struct schema secrets_schema = SCHEMA(S, "secrets", secrets_fields);
#undef S
#define S struct launch_component
static const struct field launch_component_fields[] = {
    FIELD(1, S, id, ""),
    FIELD(2, S, partition, ""),
    FIELD_LIST_SUB(3, S, parts, &job_part_schema, ""),
    FIELD(4, S, tasks, ""),
    FIELD(5, S, tasks_per_node, ""),
    FIELD(6, S, cpus_per_task, ""),
    FIELD(7, S, memory_per_node_bytes, ""),
    FIELD(8, S, memory_per_cpu_bytes, ""),
};
static const struct schema launch_component_schema = SCHEMA(S, "launch_component", launch_component_fields);
#undef S
#define S struct launch_job
static const struct field launch_job_fields[] = {
    FIELD(1, S, id, ""),           FIELD(2, S, attempt, ""),   FIELD(3, S, start_ms, ""),
    FIELD(4, S, time_limit_s, ""), FIELD(5, S, component, ""), FIELD_SUB(6, S, spec, &spec_schema, ""),
};
static const struct schema launch_job_schema = SCHEMA(S, "launch_job", launch_job_fields);
#undef S
#define S struct launch_volume
static const struct field launch_volume_fields[] = {
    FIELD(1, S, root, ""),        FIELD(2, S, path, ""),    FIELD(3, S, to, ""),
    FIELD(4, S, read_only, ""),   FIELD(5, S, title, ""),   FIELD(6, S, uid, ""),
    FIELD(7, S, gid, ""),         FIELD(8, S, mode, ""),    FIELD(9, S, number, ""),
    FIELD(10, S, size_bytes, ""), FIELD(11, S, shared, ""),
};
static const struct schema launch_volume_schema = SCHEMA(S, "launch_volume", launch_volume_fields);
#undef S
#define S struct message_launch
static const struct field launch_fields[] = {
    FIELD(1, S, id, ""),
    FIELD(2, S, array_id, ""),
    FIELD(3, S, array_index, ""),
    FIELD(4, S, attempt, ""),
    FIELD_SUB(5, S, spec, &spec_schema, ""),
    FIELD(6, S, script, ""),
    FIELD_LIST(7, S, environment, ""),
    FIELD_SUB(8, S, part, &job_part_schema, ""),
    FIELD_LIST_SUB(9, S, parts, &job_part_schema, ""),
    FIELD(10, S, node_index, ""),
    FIELD_LIST(11, S, gpu_uuids, ""),
    FIELD(12, S, time_limit_s, ""),
    FIELD(13, S, elapsed_s, ""),
    FIELD(14, S, first_rank, ""),
    FIELD(15, S, cluster, ""),
    FIELD(16, S, submit_ms, ""),
    FIELD(17, S, is_array, ""),
    FIELD(18, S, array_count, ""),
    FIELD(19, S, array_min, ""),
    FIELD(20, S, array_max, ""),
    FIELD(21, S, project_shares, ""),
    FIELD(22, S, group_name, ""),
    FIELD(23, S, epoch, ""),
    FIELD(24, S, seq, ""),
    FIELD_SUB(40, S, workers, &workers_schema, ""),
    FIELD(41, S, worker, ""),
    FIELD_LIST_SUB(51, S, components, &launch_component_schema, ""),
    FIELD_SUB(63, S, job, &launch_job_schema, ""),
    FIELD_LIST_SUB(81, S, volumes, &launch_volume_schema, ""),
};
static const struct schema launch_schema = SCHEMA(S, "launch", launch_fields);
#undef S
#define S struct message_kill
static const struct field kill_fields[] = {
    FIELD(1, S, id, ""),
    FIELD(2, S, attempt, ""),
    FIELD_WORDS_OPEN(3, S, cause, event_end_cause_words, ""),
    FIELD(4, S, signal, ""),
    FIELD(5, S, grace_s, ""),
    FIELD(6, S, step, ""),
    FIELD(7, S, reason, ""),
    FIELD(8, S, checkpoint, ""),
    FIELD(9, S, epoch, ""),
};
static const struct schema kill_schema = SCHEMA(S, "kill", kill_fields);
#undef S
#define S struct message_signal
static const struct field signal_fields[] = {FIELD(1, S, id, ""),     FIELD(2, S, attempt, ""),
                                             FIELD(3, S, signal, ""), FIELD(4, S, batch_only, ""),
                                             FIELD(5, S, step, ""),   FIELD(6, S, steps_only, "")};
static const struct schema signal_schema = SCHEMA(S, "signal", signal_fields);
#undef S
#define S struct message_ack
static const struct field ack_fields[] = {FIELD(1, S, id, ""), FIELD(2, S, attempt, ""),
                                          FIELD(3, S, epoch, ""), FIELD(4, S, seq, ""),
                                          FIELD(5, S, of_epoch, "")};
static const struct schema ack_schema = SCHEMA(S, "ack", ack_fields);
#undef S
#define S struct message_ping
static const struct field ping_fields[] = {FIELD(1, S, at_ms, ""), FIELD_SUB(2, S, at, &position_schema, "")};
static const struct schema ping_schema = SCHEMA(S, "ping", ping_fields);
#undef S
#define S struct message_describe
static const struct field describe_fields[] = {FIELD(1, S, id, ""), FIELD(2, S, attempt, "")};
static const struct schema describe_schema = SCHEMA(S, "describe", describe_fields);
#undef S
#define S struct message_attempt
static const struct field described_fields[] = {
    FIELD(1, S, id, ""),
    FIELD(2, S, attempt, ""),
    FIELD_SUB(3, S, launch, &launch_schema, ""),
    FIELD(4, S, start_ms, ""),
    FIELD(5, S, cpu_ids, ""),
    FIELD_SUB(6, S, end, &ended_schema, ""),
    FIELD(7, S, last_step, ""),
    FIELD(64, S, generation, ""),
    FIELD_LIST_SUB(65, S, steps, &step_state_schema, ""),
};
static const struct schema described_schema = SCHEMA(S, "attempt", described_fields);
#undef S
#define S struct message_step_known
static const struct field step_known_fields[] = {
    FIELD(1, S, id, ""),     FIELD(2, S, attempt, ""), FIELD(3, S, step, ""),
    FIELD(4, S, epoch, ""),  FIELD(5, S, known, ""),   FIELD_SUB(6, S, end, &event_step_end_schema, ""),
    FIELD(7, S, origin, ""),
};
static const struct schema step_known_schema = SCHEMA(S, "step_known", step_known_fields);
#undef S
#define S struct message_log_read
static const struct field log_read_fields[] = {
    FIELD(1, S, stream, ""),
    FIELD(2, S, id, ""),
    FIELD(3, S, attempt, ""),
    FIELD_SUB(4, S, spec, &spec_schema, ""),
    FIELD_SUB(5, S, part, &job_part_schema, ""),
    FIELD(6, S, array_id, ""),
    FIELD(7, S, array_index, ""),
    FIELD_WORDS(8, S, source, message_log_source_words, ""),
    FIELD(9, S, follow, ""),
    FIELD(10, S, tail_lines, ""),
    FIELD(11, S, credit, ""),
    FIELD(12, S, node_index, ""),
    FIELD(13, S, attached, ""),
    FIELD(14, S, resumed, ""),
    FIELD(15, S, offset, ""),
    FIELD(16, S, file, ""),
    FIELD(17, S, placed, ""),
    FIELD(18, S, times, ""),
    FIELD(19, S, epoch, ""),
};
static const struct schema log_read_schema = SCHEMA(S, "log_read", log_read_fields);
#undef S
const char *const message_step_mpi_words[] = {"none", "pmi", "pmix", "both", NULL};
#define S struct message_exec
static const struct field exec_fields[] = {
    FIELD(1, S, stream, ""),
    FIELD(2, S, id, ""),
    FIELD(3, S, attempt, ""),
    FIELD(4, S, step, ""),
    FIELD_LIST(5, S, argv, ""),
    FIELD_LIST(6, S, environment, ""),
    FIELD(7, S, workdir, ""),
    FIELD(8, S, pty, ""),
    FIELD(9, S, rows, ""),
    FIELD(10, S, columns, ""),
    FIELD(11, S, tasks, ""),
    FIELD(12, S, first_rank, ""),
    FIELD(13, S, total_tasks, ""),
    FIELD(14, S, cpus_per_task, ""),
    FIELD(15, S, memory_bytes, ""),
    FIELD(16, S, output, ""),
    FIELD(17, S, error, ""),
    FIELD(18, S, input, ""),
    FIELD(19, S, label, ""),
    FIELD(20, S, kill_on_bad_exit, ""),
    FIELD(21, S, append, ""),
    FIELD(22, S, time_limit_s, ""),
    FIELD(23, S, credit, ""),
    FIELD_LIST_SUB(24, S, gpus, &gpu_grant_schema, ""),
    FIELD_LIST(25, S, gpu_uuids, ""),
    FIELD(26, S, node_index, ""),
    FIELD(27, S, nodes, ""),
    FIELD(28, S, node_count, ""),
    FIELD_LIST(29, S, tasks_per_node, ""),
    FIELD_LIST(30, S, cpus, ""),
    FIELD(40, S, wait_s, ""),
    FIELD(41, S, input_rank, ""),
    FIELD(42, S, container, ""),
    FIELD(43, S, container_mounts, ""),
    FIELD(44, S, container_workdir, ""),
    FIELD(46, S, umask_plus, ""),
    FIELD_LIST(47, S, ranks, ""),
    FIELD_LIST(48, S, task_gpus, ""),
    FIELD(49, S, epoch, ""),
    FIELD(50, S, seq, ""),
    FIELD(51, S, origin, ""),
    FIELD(52, S, container_name, ""),
    FIELD_WORDS(60, S, mpi, message_step_mpi_words, ""),
    FIELD_LIST(61, S, task_nodes, ""),
    FIELD(62, S, cpu_bind, ""),
};
const struct schema message_exec_schema = SCHEMA(S, "exec", exec_fields);
#undef S
#define S struct message_time_limit
static const struct field time_limit_fields[] = {FIELD(1, S, id, ""), FIELD(2, S, attempt, ""),
                                                 FIELD(3, S, time_limit_s, "")};
static const struct schema time_limit_schema = SCHEMA(S, "time_limit", time_limit_fields);
#undef S
#define S struct message_suspend
static const struct field suspend_fields[] = {FIELD(1, S, id, ""), FIELD(2, S, attempt, ""), FIELD(3, S, resume, "")};
static const struct schema suspend_schema = SCHEMA(S, "suspend", suspend_fields);
#undef S
#define S struct gpu_sample
static const struct field sample_fields[] = {
    FIELD(1, S, index, ""),
    FIELD(2, S, id, ""),
    FIELD(3, S, utilisation_milli, ""),
    FIELD(4, S, memory_used_bytes, ""),
    FIELD(5, S, memory_total_bytes, ""),
    FIELD(6, S, power_mw, ""),
    FIELD(7, S, energy_mj, ""),
    FIELD(8, S, temperature_c, ""),
    FIELD(9, S, memory_temperature_c, ""),
    FIELD(10, S, sm_clock_mhz, ""),
    FIELD(11, S, memory_clock_mhz, ""),
    FIELD(12, S, throttle_reasons, ""),
    FIELD(13, S, pcie_tx_bytes_s, ""),
    FIELD(14, S, pcie_rx_bytes_s, ""),
    FIELD(15, S, xid_errors, ""),
    FIELD(16, S, ecc_errors, ""),
    FIELD(17, S, remapped_rows, ""),
    FIELD(18, S, throttled_milli, ""),
    FIELD(19, S, attempt, ""),
    FIELD(20, S, nvlink_bytes_s, ""),
    FIELD(21, S, memory_copy_milli, ""),
    FIELD(22, S, encoder_milli, ""),
    FIELD(23, S, decoder_milli, ""),
    FIELD(24, S, pcie_replays, ""),
    FIELD(25, S, utilisation_unknown, ""),
    FIELD(26, S, finding, ""),
    FIELD(27, S, foreign_bytes, ""),
    FIELD(28, S, foreign_processes, ""),
    FIELD(29, S, stray, ""),
    FIELD(30, S, profiled, ""),
    FIELD(31, S, engine_milli, ""),
    FIELD(32, S, sm_milli, ""),
    FIELD(33, S, occupancy_milli, ""),
    FIELD(34, S, tensor_milli, ""),
    FIELD(35, S, dram_milli, ""),
    FIELD(36, S, remapped_uncorrected, ""),
    FIELD(37, S, remap_failed, ""),
};
static const struct schema sample_schema = SCHEMA(S, "gpu_sample", sample_fields);
#undef S
#define S struct message_telemetry
static const struct field telemetry_fields[] = {
    FIELD(1, S, at_ms, ""),     FIELD_LIST_SUB(2, S, gpus, &sample_schema, ""), FIELD(3, S, memory_used_bytes, ""),
    FIELD(4, S, disk_free_bytes, ""), FIELD(5, S, cpu_milli, ""),               FIELD(6, S, load_milli, ""),
    FIELD(7, S, disk_bytes, ""),
};
static const struct schema telemetry_schema = SCHEMA(S, "telemetry", telemetry_fields);
#undef S

static const struct message_info infos[MESSAGE_TYPE_MAX] = {
    [MESSAGE_HELLO] = {"hello", &hello_schema, .from_agent = true},
    [MESSAGE_STARTED] = {"started", &started_schema, .from_agent = true},
    [MESSAGE_ENDED] = {"ended", &ended_schema, .from_agent = true},
    [MESSAGE_USAGE] = {"usage", &usage_message_schema, .from_agent = true},
    [MESSAGE_IMAGE] = {"image", &image_schema, .from_agent = true},
    [MESSAGE_HEALTH] = {"health", &health_message_schema, .from_agent = true},
    [MESSAGE_NODE_IMAGES] = {"node_images", &message_node_images_schema, .from_agent = true},
    [MESSAGE_STREAM_DATA] = {"stream_data", &stream_schema, .from_agent = true, .from_controller = true},
    [MESSAGE_STREAM_END] = {"stream_end", &stream_schema, .from_agent = true, .from_controller = true},
    [MESSAGE_NODE_LOOK] = {"node_look", &node_look_schema, .from_controller = true},
    [MESSAGE_NODE_SEEN] = {"node_seen", &node_seen_schema, .from_agent = true},
    [MESSAGE_PONG] = {"pong", &ping_schema, .from_agent = true},
    [MESSAGE_STEP_ENDED] = {"step_ended", &stream_schema, .from_agent = true},
    [MESSAGE_TELEMETRY] = {"telemetry", &telemetry_schema, .from_agent = true},
    [MESSAGE_NODE_CHANGED] = {"node_changed", &node_schema, .from_agent = true},
    [MESSAGE_ATTEMPT] = {"attempt", &described_schema, .from_agent = true},
    [MESSAGE_DESCRIBE] = {"describe", &describe_schema, .from_controller = true},
    [MESSAGE_WELCOME] = {"welcome", &welcome_schema, .from_controller = true},
    [MESSAGE_LAUNCH] = {"launch", &launch_schema, .from_controller = true},
    [MESSAGE_KILL] = {"kill", &kill_schema, .from_controller = true},
    [MESSAGE_SIGNAL] = {"signal", &signal_schema, .from_controller = true},
    [MESSAGE_ACK] = {"ack", &ack_schema, .from_controller = true},
    [MESSAGE_PING] = {"ping", &ping_schema, .from_controller = true},
    [MESSAGE_LOG_READ] = {"log_read", &log_read_schema, .from_controller = true},
    [MESSAGE_EXEC] = {"exec", &message_exec_schema, .from_controller = true},
    [MESSAGE_RESIZE] = {"resize", &stream_schema, .from_controller = true},
    [MESSAGE_STREAM_CREDIT] = {"stream_credit", &stream_schema, .from_agent = true, .from_controller = true},
    [MESSAGE_STEP] = {"step", &message_exec_schema, .from_controller = true},
    [MESSAGE_STEP_END] = {"step_end", &event_step_end_schema, .from_agent = true},
    [MESSAGE_STEP_ACK] = {"step_ack", &step_message_schema, .from_controller = true},
    [MESSAGE_STEP_ATTACH] = {"step_attach", &step_message_schema, .from_controller = true},
    [MESSAGE_WORKERS] = {"workers", &workers_schema, .from_controller = true},
    [MESSAGE_SECRETS] = {"secrets", &secrets_schema, .from_controller = true},
    [MESSAGE_FILE] = {"file", &file_request_schema, .from_controller = true},
    [MESSAGE_FILE_RESULT] = {"file_result", &file_result_schema, .from_agent = true},
    [MESSAGE_STEP_RECEIVED] = {"step_received", &step_message_schema, .from_controller = true},
    [MESSAGE_CONNECT] = {"connect", &connect_schema, .from_controller = true},
    [MESSAGE_STEP_DESCRIBE] = {"step_describe", &step_message_schema, .from_controller = true},
    [MESSAGE_STEP_KNOWN] = {"step_known", &step_known_schema, .from_agent = true},
    [MESSAGE_STEP_LISTENS] = {"step_listens", &message_step_hub_schema, .from_agent = true},
    [MESSAGE_STEP_HUB] = {"step_hub", &message_step_hub_schema, .from_controller = true},
    [MESSAGE_TIME_LIMIT] = {"time_limit", &time_limit_schema, .from_controller = true},
    [MESSAGE_SUSPEND] = {"suspend", &suspend_schema, .from_controller = true},
};

const struct message_info *message_info(enum message_type type) {
    return type < MESSAGE_TYPE_MAX && infos[type].name ? &infos[type] : NULL;
}

void message_encode(const struct message *m, struct buf *out) {
    const struct message_info *info = message_info(m->type);
    assert(info);
    schema_put_varint(out, m->type);
    schema_encode(info->schema, m->body, out);
}

void message_put_term(struct buf *out, uint64_t term) {
    schema_put_varint(out, MESSAGE_TERM);
    schema_put_varint(out, term);
}

int message_take_term(const char **data, size_t *len, uint64_t *term) {
    const uint8_t *p = (const uint8_t *)*data, *end = p + *len;
    uint64_t type;
    *term = 0;
    if (schema_get_varint(&p, end, &type) < 0 || type != MESSAGE_TERM)
        return 0;
    if (schema_get_varint(&p, end, term) < 0)
        return -EBADMSG;
    *data = (const char *)p;
    *len = (size_t)(end - p);
    return 0;
}

enum { MESSAGE_EXPANSION_MAX = 32, MESSAGE_EXPANSION_FREE = 1 << 20 };

static int decode(const void *data, size_t len, bool views, struct arena *a, struct message *m) {
    const uint8_t *p = data, *end = p + len;
    uint64_t type;
    int r = schema_get_varint(&p, end, &type);
    if (r < 0)
        return r;
    if (type == MESSAGE_NONE || type > MESSAGE_NUMBER_MAX)
        return -EBADMSG;
    *m = (struct message){.type = (enum message_type)type};
    const struct message_info *info = message_info(m->type);
    if (!info)
        return -EPROTONOSUPPORT;
    void *body = arena_alloc(a, info->schema->size);
    // A few bytes can stand for a large struct: what they become is bounded by what was sent.
    size_t memory_max = len * MESSAGE_EXPANSION_MAX + MESSAGE_EXPANSION_FREE;
    r = (views ? schema_decode_views : schema_decode_bounded)(info->schema, p, (size_t)(end - p), memory_max,
                                                              a, body);
    if (r < 0)
        return r;
    m->body = body;
    return 0;
}

int message_decode(const void *data, size_t len, struct arena *a, struct message *m) {
    return decode(data, len, false, a, m);
}

int message_decode_views(const void *data, size_t len, struct arena *a, struct message *m) {
    return decode(data, len, true, a, m);
}

bool message_wipe(const struct message *m) {
    if (m->type == MESSAGE_STEP_HUB || m->type == MESSAGE_STEP_LISTENS) {
        const struct message_step_hub *h = m->body;
        if (h->key.len)
            explicit_bzero((void *)(uintptr_t)h->key.data, h->key.len);
        return true;
    }
    if (m->type != MESSAGE_SECRETS)
        return false;
    const struct message_secrets *s = m->body;
    for (uint32_t i = 0; i < s->secrets.len; i++)
        if (s->secrets.at[i].value.len)
            explicit_bzero((void *)(uintptr_t)s->secrets.at[i].value.data, s->secrets.at[i].value.len);
    return true;
}

bool message_skip(struct message_skips *s, enum message_type type) {
    assert((uint32_t)type <= (uint32_t)MESSAGE_NUMBER_MAX);
    uint8_t bit = (uint8_t)(1u << (type % 8));
    bool first = !(s->bits[type / 8] & bit);
    s->bits[type / 8] |= bit;
    return first;
}
