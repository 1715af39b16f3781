// Fuzz target: what an agent sends, before and after its hello, as the controller passes it to the core. The input is a
// row of messages, each with two bytes of length. Afterwards the core is consistent, and its snapshot can be loaded.
#include "harness.h"
#include "model/message.h"
#include "sample.h"

const struct fuzz_seed fuzz_seeds[] = {FUZZ_SEED("\x02\x00\x01\x03"), {0}};

void fuzz_corpus(fuzz_add_fn add) {
    struct rand r;
    rand_seed(&r, 3);
    for (int n = 0; n < 200; n++) {
        cleanup_buf struct buf row = {0};
        for (int k = 0; k < 4; k++) {
            cleanup_buf struct buf b = {0};
            unsigned type = n % 2 && !k ? MESSAGE_HELLO : (unsigned)rand_below(&r, MESSAGE_TYPE_MAX);
            const struct message_info *info = message_info((enum message_type)type);
            if (!info || !info->from_agent)
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

static void take(struct core *c, const struct message *m, int64_t now_ms) {
    struct error e = {0};
    struct message_hello *h = m->body;
    struct node *n = m->body;
    switch (m->type) {
    case MESSAGE_HELLO:
        if (h->node && !str_empty(h->node->name))
            core_agent_hello(c, h, NULL, now_ms, &e);
        break;
    case MESSAGE_STARTED: core_agent_started(c, "n1", m->body, now_ms); break;
    case MESSAGE_ENDED: core_agent_ended(c, "n1", m->body, now_ms); break;
    case MESSAGE_HEALTH: core_agent_health(c, "n1", m->body, now_ms); break;
    case MESSAGE_NODE_IMAGES: core_agent_images(c, "n1", m->body, now_ms); break;
    case MESSAGE_ATTEMPT: core_agent_attempt(c, "n1", m->body, now_ms); break;
    case MESSAGE_STEP_KNOWN: core_agent_step_known(c, "n1", m->body, now_ms); break;
    case MESSAGE_STEP_LISTENS: core_agent_step_listens(c, "n1", m->body); break;
    case MESSAGE_STEP_END: core_agent_step_ended(c, "n1", m->body, now_ms); break;
    case MESSAGE_NODE_CHANGED:
        if (!str_empty(n->name) && streq(n->name, "n1"))
            core_agent_node_changed(c, n, now_ms);
        break;
    // The controller's, not the core's: src/controller/fuzz/fuzz_agents.c.
    case MESSAGE_USAGE:
    case MESSAGE_STREAM_DATA:
    case MESSAGE_STREAM_END:
    case MESSAGE_STREAM_CREDIT:
    case MESSAGE_PONG:
    case MESSAGE_STEP_ENDED:
    case MESSAGE_TELEMETRY:
    case MESSAGE_IMAGE:
    case MESSAGE_FILE_RESULT:
    case MESSAGE_NODE_SEEN: break;
    default: FUZZ_CHECK(!"a message of agents that is tried here or there");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t now_ms = 1000000;
    struct core *c = harness_core(now_ms);
    while (size > 2) {
        cleanup_arena struct arena a = {0};
        struct message m;
        size_t len = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2, size -= 2;
        len = len > size ? size : len;
        if (message_decode(data, len, &a, &m) == 0 && message_info(m.type)->from_agent) {
            take(c, &m, ++now_ms);
            core_schedule(c, now_ms);
            core_outbox_clear(core_outbox(c));
            core_assert(c);
        }
        data += len, size -= len;
    }
    struct core_config config;
    struct error e = {0};
    cleanup_buf struct buf snapshot = {0};
    core_config_default(&config);
    struct core *copy = core_new(&config);
    core_snapshot(c, &snapshot);
    FUZZ_CHECK(core_load_snapshot(copy, core_seq(c), snapshot.data, snapshot.len, &e) == 0);
    core_free(copy);
    core_free(c);
    return 0;
}
