// Fuzz target: what an agent with a certificate sends, as the daemon sees it after the WebSocket: every message, before
// and after its hello, in any order. Somebody follows the output of a job there, reads a file and looks at the node, so
// that there are streams to answer. The input is a row of messages, each with two bytes of length. The controller is
// opened anew for every ROUND inputs; another node's job must run on whatever comes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test/rig.h"
#include "base/text.h"
#include "driver.h"
#include "sample.h"

enum { ROUND = 64, STREAMS = 8 };

const struct fuzz_seed fuzz_seeds[] = {FUZZ_SEED("\x01\x00\x07"), FUZZ_SEED("\x02\x00\x01\x03"), {0}};

void fuzz_corpus(fuzz_add_fn add) {
    struct rand r;
    rand_seed(&r, 13);
    for (unsigned n = 0; n < 4 * MESSAGE_TYPE_MAX; n++) {
        cleanup_buf struct buf row = {0};
        for (int k = 0; k < 3; k++) {
            cleanup_buf struct buf b = {0};
            unsigned type = k == 2 ? n % MESSAGE_TYPE_MAX : (unsigned)rand_below(&r, MESSAGE_TYPE_MAX);
            const struct message_info *info = message_info((enum message_type)type);
            if (!info)
                continue;
            buf_addc(&b, (char)type);
            fuzz_sample_binary(info->schema, &r, 0, &b);
            buf_addc(&row, (char)(b.len & 255));
            buf_addc(&row, (char)(b.len >> 8));
            buf_add(&row, b.data, b.len);
        }
        add(row.data ? row.data : "", row.len);
    }
}

static struct rig rig;
static struct net_ws *hostile;
static uint64_t others_job;
static unsigned inputs;

// A job of alice's that runs on the other node.
static void open_rig(void) {
    cleanup_arena struct arena a = {0};
    rig_open(&rig);
    struct net_ws *good = rig_agent(&rig, "good");
    rig_call(&rig, &fake_alice, "POST", "/v1/jobs",
             "{\"spec\":{\"name\":\"x\",\"workdir\":\"/\",\"argv\":[\"true\"]}}");
    const struct message_launch *m = fake_next_message(good, MESSAGE_LAUNCH, &a);
    FUZZ_CHECK(m);
    others_job = m->id;
    rig_message(&rig, good, MESSAGE_STARTED,
                &(struct message_started){.id = m->id, .attempt = 1, .at_ms = controller_now_ms()});
    hostile = NULL;
}

// Its connection, with something asked of it; made again after it was refused.
static void connect_hostile(void) {
    if (hostile && !hostile->closing)
        return;
    hostile = rig_agent(&rig, "evil");
    for (int i = 0; i < STREAMS; i++)
        rig_call(&rig, i % 2 ? &fake_alice : &fake_bob, "GET",
                 i % 4 == 0   ? "/v1/files?path=/&node=evil"
                 : i % 4 == 1 ? "/v1/files/content?path=/f&node=evil"
                 : i % 4 == 2 ? "/v1/files/zip?path=/d&node=evil"
                              : "/v1/nodes/evil/processes",
                 NULL);
}

// About the job of the other node, well-formed.
static void send_reports(void) {
    uint64_t id = others_job;
    struct node node = {.name = "good", .cpus = 1};
    struct usage usage = {.cpu_user_us = UINT64_MAX};
    rig_message(&rig, hostile, MESSAGE_STARTED, &(struct message_started){.id = id, .attempt = 1, .pid = 1});
    rig_message(&rig, hostile, MESSAGE_ENDED, &(struct message_ended){.id = id, .attempt = 1});
    rig_message(&rig, hostile, MESSAGE_HEALTH,
                &(struct message_health){.id = id, .attempt = 1, .health = HEALTH_SICK});
    rig_message(&rig, hostile, MESSAGE_USAGE,
                &(struct message_usage){.id = id, .attempt = 1, .usage = &usage});
    rig_message(&rig, hostile, MESSAGE_IMAGE,
                &(struct message_image){.id = id, .attempt = 1, .preparing = true});
    rig_message(&rig, hostile, MESSAGE_STEP_END, &(struct step_end){.id = id, .attempt = 1, .step = 1});
    rig_message(&rig, hostile, MESSAGE_NODE_CHANGED, &node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct job_view v;
    if (inputs++ % ROUND == 0) {
        if (inputs > 1)
            rig_close(&rig);
        open_rig();
    }
    connect_hostile();
    if (inputs % ROUND == 1)
        send_reports();
    while (size > 2 && !hostile->closing) {
        size_t len = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2, size -= 2;
        len = len > size ? size : len;
        fake_binary(&rig, hostile, data, len);
        data += len, size -= len;
    }
    FUZZ_CHECK(core_view(rig.c.core, others_job, &v) && v.state == JOB_RUNNING && v.attempt == 1);
    return 0;
}
