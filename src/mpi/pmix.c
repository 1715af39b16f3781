// Owns the PMIx server: libpmix is loaded at run time, so that nodes without it can do everything else. Its calls come
// on its own thread and are put into a queue; answers may be given from any thread.
#include "pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/text.h"
#include "base/vec.h"

#ifdef HAVE_PMIX
#include <pmix_server.h>

enum { PROC_INFOS = 9 };

enum ask_type { ASK_COLLECT, ASK_MODEX, ASK_JOINED, ASK_FINISHED, ASK_ABORT, ASK_ANSWER };

struct ask {
    struct ask *next;
    enum ask_type type;
    uint32_t rank;
    int32_t status;
    uint64_t question;
    char *text;
    uint32_t *nodes, count;
    char *data;
    size_t len;
    pmix_modex_cbfunc_t modex;
    pmix_op_cbfunc_t op;
    void *cbdata;
};

struct library {
    void *handle;
    pmix_status_t (*init)(pmix_server_module_t *, pmix_info_t *, size_t);
    pmix_status_t (*finalize)(void);
    pmix_status_t (*nspace)(const pmix_nspace_t, int, pmix_info_t *, size_t, pmix_op_cbfunc_t, void *);
    pmix_status_t (*client)(const pmix_proc_t *, uid_t, gid_t, void *, pmix_op_cbfunc_t, void *);
    pmix_status_t (*fork)(const pmix_proc_t *, char ***);
    pmix_status_t (*regex)(const char *, char **);
    pmix_status_t (*ppn)(const char *, char **);
    pmix_status_t (*modex)(const pmix_proc_t *, pmix_dmodex_response_fn_t, void *);
    const char *(*words)(pmix_status_t);
};

struct pmix_server {
    struct arena arena;
    struct pmix_options o;
    struct pmix_host host;
    void *ctx;
    struct library lib;
    int wake;
    pthread_mutex_t lock;
    struct ask *first, **last;
};

static struct pmix_server *the_server;  // libpmix has one server per process and passes no context

static int load(struct library *l, struct error *e) {
    const struct {
        const char *name;
        void *to;
    } names[] = {{"PMIx_server_init", &l->init},
                 {"PMIx_server_finalize", &l->finalize},
                 {"PMIx_server_register_nspace", &l->nspace},
                 {"PMIx_server_register_client", &l->client},
                 {"PMIx_server_setup_fork", &l->fork},
                 {"PMIx_generate_regex", &l->regex},
                 {"PMIx_generate_ppn", &l->ppn},
                 {"PMIx_server_dmodex_request", &l->modex},
                 {"PMIx_Error_string", &l->words}};
    l->handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!l->handle)
        return error_set(e, ENOENT, "PMIx is not installed on the node (package libpmix2): %s", dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *p = dlsym(l->handle, names[i].name);
        if (!p)
            return error_set(e, ENOENT, "the node's libpmix has no %s", names[i].name);
        memcpy(names[i].to, &p, sizeof p);
    }
    return 0;
}

// What the node consists of, as hwloc's XML; the ranks read it from here. Looking for themselves, each of them would
// open some 200 files, bind itself to one CPU after the other, and look for X servers.
static char *describe_node(void) {
    struct {
        int (*init)(void **);
        int (*filter)(void *, int);
        int (*load)(void *);
        int (*xml)(void *, char **, int *, unsigned long);
        void (*destroy)(void *);
    } hwloc = {0};
    const struct {
        const char *name;
        void *to;
    } names[] = {{"hwloc_topology_init", &hwloc.init},
                 {"hwloc_topology_set_io_types_filter", &hwloc.filter},
                 {"hwloc_topology_load", &hwloc.load},
                 {"hwloc_topology_export_xmlbuffer", &hwloc.xml},
                 {"hwloc_topology_destroy", &hwloc.destroy}};
    enum { KEEP_IMPORTANT = 3 };  // HWLOC_TYPE_FILTER_KEEP_IMPORTANT
    void *handle = dlopen("libhwloc.so.15", RTLD_NOW), *node = NULL;
    char *text = NULL;
    int len = 0;
    for (size_t i = 0; handle && i < sizeof names / sizeof *names; i++) {
        void *p = dlsym(handle, names[i].name);
        if (!p)
            return NULL;
        memcpy(names[i].to, &p, sizeof p);
    }
    if (!handle || hwloc.init(&node) < 0)
        return NULL;
    hwloc.filter(node, KEEP_IMPORTANT);
    if (hwloc.load(node) < 0 || hwloc.xml(node, &text, &len, 0) < 0)
        text = NULL;
    hwloc.destroy(node);
    return text;  // hwloc's, kept to the end
}

// --- the queue ---

static void ask(struct ask a) {
    struct pmix_server *s = the_server;
    struct ask *copy = xmemdup(&a, sizeof a);
    uint64_t one = 1;
    pthread_mutex_lock(&s->lock);
    *s->last = copy;
    s->last = &copy->next;
    pthread_mutex_unlock(&s->lock);
    if (write(s->wake, &one, sizeof one) < 0)
        return;  // it is awake
}

static void carry_out(struct pmix_server *s, struct ask *a) {
    switch (a->type) {
    case ASK_COLLECT:
        s->host.collect(s->ctx, a->text, a->nodes, a->count, a->data, a->len, a);
        return;  // freed when it is answered
    case ASK_MODEX: s->host.ask(s->ctx, a->rank, a); return;
    case ASK_JOINED: s->host.joined(s->ctx, a->rank); break;
    case ASK_FINISHED:
        s->host.finished(s->ctx, a->rank);
        a->op(PMIX_SUCCESS, a->cbdata);
        break;
    case ASK_ABORT:
        s->host.abort(s->ctx, a->rank, a->status, a->text);
        a->op(PMIX_SUCCESS, a->cbdata);
        break;
    case ASK_ANSWER: s->host.answer(s->ctx, a->question, a->status, a->data, a->len); break;
    }
    free(a->text);
    free(a->nodes);
    free(a->data);
    free(a);
}

int pmix_server_fd(const struct pmix_server *s) {
    return s->wake;
}

void pmix_server_serve(struct pmix_server *s) {
    uint64_t count;
    if (read(s->wake, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&s->lock);
    struct ask *list = s->first;
    s->first = NULL;
    s->last = &s->first;
    pthread_mutex_unlock(&s->lock);
    while (list) {
        struct ask *a = list;
        list = a->next;
        carry_out(s, a);
    }
}

// --- what libpmix asks for, on its thread ---

static pmix_status_t connected(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t fn, void *data) {
    ask((struct ask){.type = ASK_JOINED, .rank = proc->rank});
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t connected2(const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t n,
                                pmix_op_cbfunc_t fn, void *data) {
    return connected(proc, object, fn, data);
}

static pmix_status_t finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t fn, void *data) {
    ask((struct ask){.type = ASK_FINISHED, .rank = proc->rank, .op = fn, .cbdata = data});
    return PMIX_SUCCESS;
}

static pmix_status_t aborted(const pmix_proc_t *proc, void *object, int status, const char msg[],
                             pmix_proc_t procs[], size_t nprocs, pmix_op_cbfunc_t fn, void *data) {
    char shown[PMI_TEXT_MAX];
    ask((struct ask){.type = ASK_ABORT,
                     .rank = proc->rank,
                     .status = status,
                     .text = xstrdup(str_printable(msg ? msg : "", shown, sizeof shown)),
                     .op = fn,
                     .cbdata = data});
    return PMIX_SUCCESS;
}

static int by_number(const void *a, const void *b) {
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

// Who takes part: as a text that is the same on every node, and the nodes they are on.
static void describe(const pmix_proc_t *procs, size_t n, struct ask *a) {
    const struct pmi_options *o = &the_server->o.step;
    cleanup_buf struct buf b = {0};
    uint32_t *ranks = xcalloc(n + 1, sizeof *ranks), count = 0;
    bool *on = xcalloc(o->nodes, sizeof *on), all = false;
    for (size_t i = 0; i < n; i++) {
        all |= procs[i].rank == PMIX_RANK_WILDCARD;
        if (procs[i].rank < o->size)
            ranks[count++] = procs[i].rank;
    }
    qsort(ranks, count, sizeof *ranks, by_number);
    buf_adds(&b, all ? "*" : "");
    for (uint32_t i = 0; !all && i < count; i++)
        buf_addf(&b, "%u,", ranks[i]);
    for (uint32_t i = 0; i < (all ? o->size : count); i++)
        on[o->places[all ? i : ranks[i]]] = true;
    a->nodes = xcalloc(o->nodes, sizeof *a->nodes);
    for (uint32_t i = 0; i < o->nodes; i++)
        if (on[i])
            a->nodes[a->count++] = i;
    a->text = buf_take(&b);
    if (!a->text)
        a->text = xstrdup("");
    free(ranks);
    free(on);
}

static pmix_status_t fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo,
                           char *data, size_t len, pmix_modex_cbfunc_t fn, void *cbdata) {
    struct ask a = {.type = ASK_COLLECT, .modex = fn, .cbdata = cbdata, .len = len};
    if (len)
        a.data = xmemdup(data, len);
    describe(procs, nprocs, &a);
    ask(a);
    return PMIX_SUCCESS;
}

static void op_over(pmix_status_t status, const char *data, size_t len, void *cbdata,
                    pmix_release_cbfunc_t fn, void *release) {
    struct ask *a = cbdata;
    a->op(status, a->cbdata);
    free(a);
}

// Connecting and disconnecting groups of processes are fences without data.
static pmix_status_t meet(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[], size_t ninfo,
                          pmix_op_cbfunc_t fn, void *cbdata) {
    struct ask keep = {.op = fn, .cbdata = cbdata};
    struct ask a = {.type = ASK_COLLECT, .modex = op_over, .cbdata = xmemdup(&keep, sizeof keep)};
    describe(procs, nprocs, &a);
    ask(a);
    return PMIX_SUCCESS;
}

static pmix_status_t direct_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t ninfo,
                                  pmix_modex_cbfunc_t fn, void *cbdata) {
    if (proc->rank >= the_server->o.step.size)
        return PMIX_ERR_NOT_FOUND;
    ask((struct ask){.type = ASK_MODEX, .rank = proc->rank, .modex = fn, .cbdata = cbdata});
    return PMIX_SUCCESS;
}

static void question_answered(pmix_status_t status, char *data, size_t len, void *cbdata) {
    struct ask a = {
        .type = ASK_ANSWER, .status = status, .question = (uint64_t)(uintptr_t)cbdata, .len = len};
    if (len)
        a.data = xmemdup(data, len);
    ask(a);
}

// --- answers ---

static void answer(struct ask *a, pmix_status_t status, const void *data, size_t len) {
    char *copy = len ? xmemdup(data, len) : NULL;
    a->modex(status, copy, len, a->cbdata, free, copy);
    free(a->text);
    free(a->nodes);
    free(a->data);
    free(a);
}

void pmix_server_collected(struct pmix_server *s, void *token, const void *data, size_t len) {
    answer(token, PMIX_SUCCESS, data, len);
}

void pmix_server_told(struct pmix_server *s, void *token, int32_t status, const void *data, size_t len) {
    answer(token, status, data, len);
}

void pmix_server_question(struct pmix_server *s, uint32_t rank, uint64_t question) {
    pmix_proc_t proc = {.rank = rank};
    snprintf(proc.nspace, sizeof proc.nspace, "%s", s->o.step.name);
    if (s->lib.modex(&proc, question_answered, (void *)(uintptr_t)question) != PMIX_SUCCESS)
        question_answered(PMIX_ERR_NOT_FOUND, NULL, 0, (void *)(uintptr_t)question);
}

// --- the step's description ---

struct infos {
    pmix_info_t *at;
    size_t len;
};

static pmix_info_t *add(struct infos *l, const char *key, pmix_data_type_t type) {
    pmix_info_t *i = &l->at[l->len++];
    memset(i, 0, sizeof *i);
    snprintf(i->key, sizeof i->key, "%s", key);
    i->value.type = type;
    return i;
}

static void add_u32(struct infos *l, const char *key, uint32_t v) {
    add(l, key, PMIX_UINT32)->value.data.uint32 = v;
}

static void add_rank(struct infos *l, const char *key, uint32_t v) {
    add(l, key, PMIX_PROC_RANK)->value.data.rank = v;
}

static void add_u16(struct infos *l, const char *key, uint32_t v) {
    add(l, key, PMIX_UINT16)->value.data.uint16 = (uint16_t)v;
}

static void add_text(struct infos *l, struct arena *a, const char *key, const char *v) {
    add(l, key, PMIX_STRING)->value.data.string = arena_strdup(a, v);
}

static const char *node_name(const struct pmix_server *s, uint32_t node, struct arena *a) {
    const char *p = s->o.node_list;
    for (; node && *p; node--)
        p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',');
    return arena_strndup(a, p, strcspn(p, ","));
}

static void add_proc(struct infos *l, struct pmix_server *s, struct arena *a, uint32_t rank, uint32_t local) {
    struct infos in = {.at = arena_alloc(a, PROC_INFOS * sizeof(pmix_info_t))};
    uint32_t node = s->o.step.places[rank];
    add_rank(&in, PMIX_RANK, rank);
    add_u32(&in, PMIX_APPNUM, 0);
    add_rank(&in, PMIX_GLOBAL_RANK, rank);
    add_rank(&in, PMIX_APP_RANK, rank);
    add_u16(&in, PMIX_LOCAL_RANK, local);
    add_u16(&in, PMIX_NODE_RANK, local);
    add_u32(&in, PMIX_NODEID, node);
    add_text(&in, a, PMIX_HOSTNAME, node_name(s, node, a));
    pmix_data_array_t *array = arena_alloc(a, sizeof *array);
    *array = (pmix_data_array_t){.type = PMIX_INFO, .size = in.len, .array = in.at};
    add(l, PMIX_PROC_DATA, PMIX_DATA_ARRAY)->value.data.darray = array;
}

// By node: its ranks, "0,1;2,3".
static void list_ranks(const struct pmi_options *o, struct buf *all, struct buf *here, uint32_t node) {
    for (uint32_t n = 0; n < o->nodes; n++) {
        bool first = true;
        for (uint32_t r = 0; r < o->size; r++) {
            if (o->places[r] != n)
                continue;
            buf_addf(all, "%s%u", first ? (n ? ";" : "") : ",", r);
            if (n == node)
                buf_addf(here, "%s%u", here->len ? "," : "", r);
            first = false;
        }
    }
}

static void op_done(pmix_status_t status, void *cbdata) {
    uint64_t one = status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED ? 1 : 2;
    if (write(*(int *)cbdata, &one, sizeof one) < 0)
        return;
}

// Waits for an operation of libpmix. The sum of an eventfd: 1 is success.
static bool wait_op(pmix_status_t rc, int fd) {
    uint64_t v = 0;
    if (rc == PMIX_OPERATION_SUCCEEDED)
        return true;
    return rc == PMIX_SUCCESS && read(fd, &v, sizeof v) == sizeof v && v == 1;
}

static int register_step(struct pmix_server *s, struct error *e) {
    struct arena *a = &s->arena;
    const struct pmi_options *o = &s->o.step;
    cleanup_buf struct buf ranks = {0}, here = {0};
    char *nodes = NULL, *places = NULL;
    struct infos l = {.at = arena_alloc(a, (24 + o->size) * sizeof(pmix_info_t))};
    uint32_t *counts = arena_alloc(a, o->nodes * sizeof *counts);
    int done = eventfd(0, EFD_CLOEXEC);
    list_ranks(o, &ranks, &here, s->o.node);
    if (done < 0 || s->lib.regex(s->o.node_list, &nodes) != PMIX_SUCCESS ||
        s->lib.ppn(buf_str(&ranks), &places) != PMIX_SUCCESS)
        return error_set(e, EIO, "libpmix cannot describe the step's nodes");
    add_text(&l, a, PMIX_JOBID, o->name);
    add_u32(&l, PMIX_UNIV_SIZE, o->size);
    add_u32(&l, PMIX_JOB_SIZE, o->size);
    add_u32(&l, PMIX_MAX_PROCS, o->size);
    add_u32(&l, PMIX_LOCAL_SIZE, o->tasks);
    add_u32(&l, PMIX_NODE_SIZE, o->tasks);
    add_u32(&l, PMIX_NUM_NODES, o->nodes);
    add_u32(&l, PMIX_JOB_NUM_APPS, 1);
    add_u32(&l, PMIX_NODEID, s->o.node);
    add_rank(&l, PMIX_LOCALLDR, o->ranks[0]);
    add_text(&l, a, PMIX_LOCAL_PEERS, buf_str(&here));
    add_text(&l, a, PMIX_NODE_MAP, nodes);
    add_text(&l, a, PMIX_PROC_MAP, places);
    add_text(&l, a, PMIX_HOSTNAME, node_name(s, s->o.node, a));
    if (s->o.folder) {
        add_text(&l, a, PMIX_TMPDIR, s->o.folder);
        add_text(&l, a, PMIX_NSDIR, s->o.folder);
        add(&l, PMIX_TDIR_RMCLEAN, PMIX_BOOL)->value.data.flag = true;
    }
    const char *topology = describe_node();
    if (topology)
        add_text(&l, a, PMIX_LOCAL_TOPO, topology);
    for (uint32_t r = 0; r < o->size; r++)
        add_proc(&l, s, a, r, counts[o->places[r]]++);
    bool fine = wait_op(s->lib.nspace(o->name, (int)o->tasks, l.at, l.len, op_done, &done), done);
    for (uint32_t i = 0; fine && i < o->tasks; i++) {
        pmix_proc_t proc = {.rank = o->ranks[i]};
        snprintf(proc.nspace, sizeof proc.nspace, "%s", o->name);
        fine = wait_op(s->lib.client(&proc, getuid(), getgid(), NULL, op_done, &done), done);
    }
    free(nodes);
    free(places);
    close(done);
    return fine ? 0 : error_set(e, EIO, "libpmix does not accept the step");
}

void pmix_server_environment(struct pmix_server *s, uint32_t rank, struct buf *out) {
    pmix_proc_t proc = {.rank = rank};
    char **env = NULL;
    snprintf(proc.nspace, sizeof proc.nspace, "%s", s->o.step.name);
    if (s->lib.fork(&proc, &env) != PMIX_SUCCESS)
        return;
    for (char **p = env; p && *p; p++) {
        buf_add(out, *p, strlen(*p) + 1);
        free(*p);
    }
    free(env);
}

int pmix_server_open(const struct pmix_options *o, const struct pmix_host *host, void *ctx,
                     struct pmix_server **out, struct error *e) {
    static pmix_server_module_t module = {.client_connected = connected,
                                          .client_connected2 = connected2,
                                          .client_finalized = finalized,
                                          .abort = aborted,
                                          .fence_nb = fence,
                                          .direct_modex = direct_modex,
                                          .connect = meet,
                                          .disconnect = meet};
    struct pmix_server *s = xcalloc(1, sizeof *s);
    *s = (struct pmix_server){
        .o = *o, .host = *host, .ctx = ctx, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pthread_mutex_init(&s->lock, NULL);
    s->last = &s->first;
    the_server = s;
    // Where ranks can read what all have put from shared memory they need not ask for each value. What cannot read it
    // there, such as another libpmix in a container, asks.
    setenv("PMIX_MCA_gds", o->folder ? "ds21,ds12,hash" : "hash", 1);
    // The kernel's files say all that is needed; the other ways to look at a node take long.
    setenv("HWLOC_COMPONENTS", "-gl,-opencl,-cuda,-nvml,-rsmi,-x86", 0);
    int rc = s->wake < 0 ? error_set(e, errno, "no event descriptor: %s", strerror(errno)) : load(&s->lib, e);
    struct infos l = {.at = arena_alloc(&s->arena, 4 * sizeof(pmix_info_t))};
    if (o->folder) {
        add_text(&l, &s->arena, PMIX_SERVER_TMPDIR, o->folder);
        add_text(&l, &s->arena, PMIX_SYSTEM_TMPDIR, o->folder);
    }
    pmix_status_t status = rc < 0 ? PMIX_SUCCESS : s->lib.init(&module, l.at, l.len);
    if (rc == 0 && status != PMIX_SUCCESS)
        rc = error_set(e, EIO, "libpmix: %s", s->lib.words(status));
    if (rc == 0)
        rc = register_step(s, e);
    *out = rc == 0 ? s : NULL;
    return rc;
}

struct pmix_server *pmix_server_close(struct pmix_server *s) {
    if (s)
        s->lib.finalize();
    return NULL;
}

#else

int pmix_server_open(const struct pmix_options *o, const struct pmix_host *host, void *ctx,
                     struct pmix_server **out, struct error *e) {
    *out = NULL;
    return error_set(e, ENOTSUP, "this release was built without PMIx (package libpmix-dev)");
}

struct pmix_server *pmix_server_close(struct pmix_server *s) {
    return NULL;
}

int pmix_server_fd(const struct pmix_server *s) {
    return -1;
}

void pmix_server_serve(struct pmix_server *s) {
}

void pmix_server_environment(struct pmix_server *s, uint32_t rank, struct buf *out) {
}

void pmix_server_collected(struct pmix_server *s, void *token, const void *data, size_t len) {
}

void pmix_server_told(struct pmix_server *s, void *token, int32_t status, const void *data, size_t len) {
}

void pmix_server_question(struct pmix_server *s, uint32_t rank, uint64_t question) {
}
#endif
