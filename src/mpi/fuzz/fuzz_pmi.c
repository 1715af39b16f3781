// Fuzz target: what tasks say in PMI-1 and PMI-2, and what other nodes' helpers send. The first byte says which: bytes
// of one task, what all nodes have put, or a connection of the step's first node.
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "mpi/link.h"
#include "mpi/pmi.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("0cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=a key=b "
              "value=c\ncmd=barrier_in\ncmd=get key=b\n"),
    FUZZ_SEED(
        "0cmd=init pmi_version=2 pmi_subversion=0\n    25cmd=kvs-put;key=a;value=b;    14cmd=kvs-fence;"),
    FUZZ_SEED(
        "0cmd=init pmi_version=2 pmi_subversion=0\n    42cmd=info-getnodeattr;key=a;wait=TRUE;thrid=1;"),
    FUZZ_SEED("0cmd=init pmi_version=1\nmcmd=spawn\nnprocs=1\nendcmd\ncmd=abort exitcode=3 message=a b\n"),
    FUZZ_SEED("0cmd=init pmi_version=1\nmcmd=spawn\nnprocs=2\nexecname=a\ntotspawns=1\narg1=b\npreput_key_0=k\n"
              "preput_val_0=v\ninfo_key_0=wdir\ninfo_val_0=/tmp\nendcmd\n"),
    FUZZ_SEED("0cmd=init pmi_version=2 pmi_subversion=0\n    68cmd=spawn;ncmds=1;ppkey0=a;ppval0=b;subcmd=x;maxprocs=2;"
              "argc=1;argv0=y;z=;"),
    FUZZ_SEED("1\1\0\1\0\0\0ab"),
    FUZZ_SEED("2\24\0\0\0\1\1\0\0\0abcdefghijklmnop"),
    {0},
};

static struct pmi_world *world;

static void reply(void *ctx, uint32_t task, const void *data, size_t len) {
    FUZZ_CHECK(task == 0 && len);
}

static void fence(void *ctx, const void *data, size_t len) {
    *(int *)ctx += 1;
}

static void on_abort(void *ctx, uint32_t rank, int code, const char *text) {
    FUZZ_CHECK(rank == 1 && strlen(text) < PMI_TEXT_MAX);
}

static bool value(void *ctx, const char *key, size_t key_len, const char *text, size_t len) {
    return true;
}

static void spawn(void *ctx, uint32_t task, const struct spawn_group *g) {
    struct buf variable = {0}, script = {0};
    uint32_t n = spawn_ranks(g), *programs = calloc(n, sizeof *programs);
    spawn_variable(g, &variable);
    spawn_script(g, &script);
    FUZZ_CHECK(n && programs && spawn_read(buf_str(&variable), n, programs, value, NULL));
    buf_done(&variable);
    buf_done(&script);
    free(programs);
    pmi_spawn_done(world, task, NULL);
}

static int frame(void *ctx, struct mpi_link *l, enum link_frame type, const char *data, size_t len) {
    FUZZ_CHECK(0);  // nobody guesses the key
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct pmi_host host = {reply, fence, on_abort, spawn};
    uint32_t places[] = {0, 1, 1}, ranks[] = {1};
    struct pmi_options o = {.size = 3, .nodes = 2, .places = places, .ranks = ranks, .tasks = 1, .name = "w"};
    int fences = 0;
    if (!size)
        return 0;
    world = pmi_world_new(&o, &host, &fences);
    if (data[0] == '2') {
        uint8_t key[MPI_KEY_BYTES] = {1}, nonce[LINK_NONCE_BYTES] = {2};
        struct mpi_link l;
        link_init(&l, true, 0, key, nonce);
        link_data(&l, data + 1, size - 1, frame, NULL);
        link_done(&l);
    } else if (data[0] == '1') {
        pmi_task_data(world, 0, "cmd=init pmi_version=1\ncmd=barrier_in\n", 38);
        FUZZ_CHECK(fences == 1);
        pmi_fence_done(world, data + 1, size - 1);
    } else {
        size_t half = size / 2;
        if (pmi_task_data(world, 0, data + 1, half) && size > half + 1)
            pmi_task_data(world, 0, data + 1 + half, size - 1 - half);
        for (int i = 0; i < fences && i < 1; i++)
            pmi_fence_done(world, NULL, 0);
        pmi_task_gone(world, 0);
    }
    world = pmi_world_free(world);
    return 0;
}
