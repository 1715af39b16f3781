// What travels between the product's store and the simulated database, and how it gets there. Shared by database.c (the
// server) and database_calls.c (its clients) only.
#pragma once
#include "base/vec.h"
#include "database.h"
#include "pg_store.h"
#include "store/sim_disk.h"
#include "threads.h"

enum { DB_PIECE_BYTES = 256 << 10 };

struct db_cell {
    char *data;
    int len;
};

struct db_result {
    int rows, columns;
    VEC(struct db_cell) cells;
};

struct db_piece {
    uint64_t seq, n;
    char *data;
    size_t len;
};

// Statements that are one transaction. What it writes is a batch, as the product's other stores know it.
struct db_work {
    struct store_batch *batch;
    struct store_key key;  // of the text that comes next
    char *text;
    size_t text_len;
    VEC(struct db_piece) pieces;
    uint64_t snapshot_seq, snapshot_len;
    bool drops, prunes, fenced;
    uint64_t prune_seq, prune_rows;
    int64_t prune_before_ms;
    uint64_t term, commits;
    int64_t lease_ms;
    char holder[STORE_ADDRESS_MAX];
};

struct db_session {
    uint32_t number, head;
    bool open;        // the server has it
    int64_t lost_ms;  // when its client learns that it has not; 0: nothing to learn
    struct db_work *work;
};

enum call_state { CALL_ON_ITS_WAY, CALL_WAITS, CALL_COMMITS, CALL_ANSWERED, CALL_LOST };

struct db_call {
    uint32_t number;  // its place among the calls
    uint64_t id;
    bool alone;  // nobody waits for it any more
    struct db_session *session;
    struct sim_thread *thread;
    enum call_state state;
    int statement;  // -1: the session's work
    struct db_work *work;
    uint64_t numbers[3];  // its values
    char texts[2][STORE_ADDRESS_MAX];
    int64_t until_ms;  // what the lease becomes
    int code;
    struct db_result *rows;
    uint64_t changed;
    int64_t answer_ms;
};

struct db_result *db_result_new(int columns);
void db_result_free(struct db_result *r);
void db_add_cell(struct db_result *r, const void *data, size_t len);
void db_add_int(struct db_result *r, int64_t v);
void db_work_free(struct db_work *w);

struct sim *db_sim(void);
struct sim_disk *db_disk(void);
uint64_t db_last_record(void);
bool db_reachable(uint32_t head);  // from this controller
int64_t db_cut_until_ms(uint32_t head);
int64_t db_slow_ms(void);
struct db_session *db_session_new(uint32_t head);
// Puts the call on its way; a program that ends does not wait: it is carried out at once, or not at all.
void db_call_begin(struct db_call *c);
// The client has its answer, or has given up; `code` is what it took it for.
void db_call_end(struct db_call *c, int code);
