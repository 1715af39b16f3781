// Fuzz target: what images say of themselves. Whatever is accepted is bounded and whole.
#include <assert.h>
#include <string.h>

#include "box/box.h"
#include "driver.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("{\"config\":{\"Env\":[\"PATH=/bin\",\"A=b\"],\"Entrypoint\":[\"/"
              "e\"],\"Cmd\":null,\"WorkingDir\":\"/w\"}}"),
    FUZZ_SEED(
        "{\"root\":{\"path\":\"rootfs\"},\"process\":{\"args\":[\"a\"],\"env\":[\"X=1\"],\"cwd\":\"/\"},"
        "\"mounts\":[{\"destination\":\"/d\",\"type\":\"bind\",\"source\":\"/"
        "s\",\"options\":[\"rbind\",\"ro\"]},"
        "{\"destination\":\"/p\",\"type\":\"proc\"},7]}"),
    FUZZ_SEED("{\"config\":[]}"),
    FUZZ_SEED("[]"),
    FUZZ_SEED("s3://models/v1?endpoint=https://store:9000 rw /data\ns3://other ro /other"),
    FUZZ_SEED("{\"mounts\":{},\"process\":[],\"root\":1}"),
    {0},
};

static void check_list(const struct box_list *l) {
    assert(l->len <= BOX_LIST_MAX && (!l->len || !l->at[l->len]));
    for (uint32_t i = 0; i < l->len; i++)
        assert(l->at[i]);
}

static void check(struct box_config *c) {
    check_list(&c->env);
    check_list(&c->entrypoint);
    check_list(&c->command);
    assert(c->mounts.len <= BOX_LIST_MAX);
    for (uint32_t i = 0; i < c->mounts.len; i++)
        assert(c->mounts.at[i].from && c->mounts.at[i].to[0] == '/');
    vec_done(&c->mounts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_arena struct arena a = {0};
    struct box_config image = {0}, bundle = {0};
    struct error e = {0};
    if (box_config_image((const char *)data, size, &a, &image, &e) < 0)
        assert(e.text[0]);
    check(&image);
    e.text[0] = 0;
    if (box_config_bundle((const char *)data, size, &a, &bundle, &e) < 0)
        assert(e.text[0]);
    check(&bundle);
    struct box_buckets buckets = {0};
    if (box_buckets_parse(arena_strndup(&a, (const char *)data, size), &a, &buckets, &e) == 0)
        for (uint32_t i = 0; i < buckets.len; i++)
            assert(*buckets.at[i].url && buckets.at[i].to[0] == '/');
    return 0;
}
