// Owns the texts of why something happened.
#include "model/reason.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const struct phrase reason_phrases[] = {
    [BECAUSE_NODE_LOST] = {"because_node_lost", "a node of the job was lost"},
    [BECAUSE_GIVEN_UP] = {"because_given_up", "the attempt was given up while the node was away"},
    [BECAUSE_END_NOT_RECORDED] = {"because_end_not_recorded", "its end was not recorded"},
    [BECAUSE_RECORD_LOST] = {"because_record_lost",
        "its record on the node was lost, and its processes were killed"},
    [BECAUSE_NOT_RUNNING] = {"because_not_running", "was not running on this node"},
    [BECAUSE_NOT_CONNECTED] = {"because_not_connected", "not connected"},
    [BECAUSE_ATTEMPTS_END] = {"because_attempts_end", "attempts of before are being ended"},
    [BECAUSE_NODE_REPORTS] = {"because_node_reports", "reports what it runs"},
    [BECAUSE_MADE_SMALLER] = {"because_made_smaller", "the job was made smaller"},
    [BECAUSE_PART_ENDED] = {"because_part_ended", "another part of the job has ended"},
    [BECAUSE_JOB_ENDED] = {"because_job_ended", "its job has ended"},
    [BECAUSE_HEAD_ENDED] = {"because_head_ended", "its component head has ended"},
    [BECAUSE_WORKERS_ENDED] = {"because_workers_ended", "its workers have ended"},
    [BECAUSE_ALL_WORKERS_ENDED] = {"because_all_workers_ended", "all its workers have ended"},
    [BECAUSE_NO_REPLICAS] = {"because_no_replicas", "no replicas are needed"},
    [BECAUSE_FEWER_REPLICAS] = {"because_fewer_replicas", "fewer replicas are needed"},
    [BECAUSE_REVISION_REPLACED] = {"because_revision_replaced", "its revision was replaced"},
    [BECAUSE_SERVICE_DELETED] = {"because_service_deleted", "its service was deleted"},
    [BECAUSE_CLIENT_AWAY] = {"because_client_away", "its client was not connected for {seconds} s"},
    [BECAUSE_PREEMPTED_SHARE] = {"because_preempted_share",
        "Preempted for job {job}: {project} used more than its share, {other} less"},
    [BECAUSE_PREEMPTED_QUOTA] = {"because_preempted_quota",
        "Preempted for job {job}: {project} used more than its quota, {other} is within its own"},
    [BECAUSE_PREEMPTED_QOS] = {"because_preempted_qos",
        "Preempted for job {job}: QoS {qos} may preempt QoS {other}"},
    [BECAUSE_PREEMPTED_PROJECT] = {"because_preempted_project",
        "Preempted for job {job}: an interactive job of the same project, within its quota"},
    [BECAUSE_GIVEN_BACK_LIMIT] = {"because_given_back_limit", "Given back: a limit of its project is reached"},
    [BECAUSE_GIVEN_BACK] = {"because_given_back", "Given back for job {job} of {project}"},
    [BECAUSE_RETRY_UNHEALTHY] = {"because_retry_unhealthy",
        "its health check failed; retry {retry} of {retries}"},
    [BECAUSE_RETRY_SIGNAL] = {"because_retry_signal", "ended by signal {signal}; retry {retry} of {retries}"},
    [BECAUSE_RETRY_STATUS] = {"because_retry_status", "exit status {status}; retry {retry} of {retries}"},
    [BECAUSE_NOT_STARTED] = {"because_not_started", "could not be started: {why}"},
};

const char *reason_text(enum reason_phrase phrase) {
    assert(!strchr(reason_phrases[phrase].english, '{'));
    return reason_phrases[phrase].english;
}

void reason_format(char *out, size_t size, enum reason_phrase phrase, const struct phrase_value *values) {
    cleanup_buf struct buf text = {0};
    phrase_text(&text, &reason_phrases[phrase], values);
    snprintf(out, size, "%s", buf_str(&text));
}
