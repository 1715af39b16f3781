// A fuzz driver without a fuzzing engine: mutates seeds, the target's corpus and the files given, with a seeded
// generator. Input number S depends on S alone, so a failure is repeated by its number.
//   fuzz_X [-n ROUNDS | -t SECONDS] [-s FIRST] [-f FILE]... prints how many inputs were tried;
//   fuzz_X - < INPUT runs one input.
#include "driver.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/rand.h"
#include "base/text.h"
#include "base/vec.h"

enum { INPUT_MAX = 64 * 1024, MUTATIONS_MAX = 8, PIECE_MAX = 64 };

static const char alphabet[] =
    "0123456789-:,._%[]+@?=#;\n\t /abcdefghijklmnopqrstuvwxyzKMGTPN*\"\\{}()<>|&!$'";
static const char *const words[] = {"\r\n",
                                    "\n",
                                    ": ",
                                    "0",
                                    "-1",
                                    "ffffffff",
                                    "4294967296",
                                    "18446744073709551615",
                                    "9223372036854775808",
                                    "chunked",
                                    ",",
                                    "\x81",
                                    "\x7e",
                                    "\x7f\xff",
                                    "\xff\xff\xff\xff\x0f",
                                    "\x80",
                                    "\xc3\xa9",
                                    "\xe2\x80\xae",
                                    "HTTP/1.1",
                                    ".",
                                    "..",
                                    "/../",
                                    "Content-Length: 5\r\n",
                                    "Host: y\r\n",
                                    "Transfer-Encoding: chunked\r\n",
                                    "null",
                                    "true",
                                    "[]",
                                    "{}",
                                    "[[[[[[[[",
                                    "\\u0000",
                                    "\\ud800",
                                    "1e999",
                                    "%n",
                                    "%00",
                                    "$(x)",
                                    "#SBATCH --",
                                    "\"\"",
                                    "[1-1000000]",
                                    "::"};

static VEC(struct fuzz_seed) inputs;
static const char *target = "fuzz";
static volatile uint64_t current;  // the input that is being tried

static void add_input(const void *data, size_t len) {
    char *copy = malloc(len + 1);
    if (!copy)
        abort();
    if (len)
        memcpy(copy, data, len);
    vec_push(&inputs, ((struct fuzz_seed){copy, len}));
}

static void add_file(const char *path) {
    static char data[INPUT_MAX];
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(2);
    }
    add_input(data, fread(data, 1, sizeof data, f));
    fclose(f);
}

static char random_char(struct rand *r) {
    return rand_below(r, 4) == 0 ? (char)rand_below(r, 256) : alphabet[rand_below(r, sizeof alphabet - 1)];
}

static void insert(struct buf *b, size_t at, const void *data, size_t len) {
    buf_reserve(b, len);
    memmove(b->data + at + len, b->data + at, b->len - at);
    memcpy(b->data + at, data, len);
    b->len += len;
}

static void mutate(struct rand *r, struct buf *b) {
    size_t at = b->len ? rand_below(r, b->len) : 0;
    size_t left = b->len - at, span = left ? 1 + rand_below(r, left < PIECE_MAX ? left : PIECE_MAX) : 0;
    const struct fuzz_seed *other = &inputs.at[rand_below(r, inputs.len)];
    char piece[PIECE_MAX];
    switch (rand_below(r, 10)) {
    case 0:  // flip a bit
        if (b->len)
            b->data[at] ^= (char)(1 << rand_below(r, 8));
        break;
    case 1:  // change a byte
        if (b->len)
            b->data[at] = random_char(r);
        break;
    case 2:  // insert a byte
        piece[0] = random_char(r);
        insert(b, at, piece, 1);
        break;
    case 3:  // insert a word that parsers stumble over
    case 4: {
        const char *word = words[rand_below(r, sizeof words / sizeof *words)];
        insert(b, at, word, strlen(word));
        break;
    }
    case 5:  // remove a piece
        memmove(b->data + at, b->data + at + span, left - span);
        b->len -= span;
        break;
    case 6:  // repeat a piece
        memcpy(piece, b->data + at, span);
        insert(b, at, piece, span);
        break;
    case 7:  // a piece of another input
        if (other->len) {
            size_t from = rand_below(r, other->len), n = other->len - from;
            insert(b, at, other->data + from, n < PIECE_MAX ? n : PIECE_MAX);
        }
        break;
    case 8:  // go on with the end of another input
        if (other->len) {
            size_t from = rand_below(r, other->len);
            b->len = at;
            buf_add(b, other->data + from, other->len - from);
        }
        break;
    default:  // cut
        if (rand_below(r, 4) == 0)
            b->len = at;
        break;
    }
}

// An exact copy, so that a sanitizer sees a read past the end.
static void try_input(const void *data, size_t len) {
    uint8_t *exact = malloc(len ? len : 1);
    if (!exact)
        abort();
    if (len)
        memcpy(exact, data, len);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
}

static void try_number(uint64_t number) {
    struct rand r;
    cleanup_buf struct buf b = {0};
    rand_seed(&r, number);
    const struct fuzz_seed *start = &inputs.at[rand_below(&r, inputs.len)];
    buf_reserve(&b, start->len + 1);
    buf_add(&b, start->data, start->len);
    for (uint64_t m = rand_below(&r, MUTATIONS_MAX + 1); m && b.len < INPUT_MAX; m--)
        mutate(&r, &b);
    current = number;
    try_input(b.data, b.len);
}

static void on_crash(int sig) {
    char text[512];
    int n = snprintf(text, sizeof text, "%s: failed at input %llu; repeat with: %s -n 1 -s %llu\n", target,
                     (unsigned long long)current, target, (unsigned long long)current);
    (void)!write(STDERR_FILENO, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    signal(sig, SIG_DFL);
    raise(sig);
}

static int one_from_stdin(void) {
    static uint8_t data[1 << 20];
    size_t n = fread(data, 1, sizeof data, stdin);
    return LLVMFuzzerTestOneInput(data, n);
}

static int usage(void) {
    fprintf(stderr, "usage: %s [-n ROUNDS | -t SECONDS] [-s FIRST] [-f FILE]... or %s - < INPUT\n", target,
            target);
    return 2;
}

int main(int argc, char **argv) {
    uint64_t rounds = 20000, seconds = 0, first = 1, tried = 0;
    target = argv[0];
    if (argc > 1 && streq(argv[1], "-"))
        return one_from_stdin();
    for (int i = 1; i < argc; i += 2) {
        uint64_t *number = streq(argv[i], "-n") ? &rounds : streq(argv[i], "-t") ? &seconds : &first;
        if (i + 1 == argc)
            return usage();
        if (streq(argv[i], "-f"))
            add_file(argv[i + 1]);
        else if ((number == &first && !streq(argv[i], "-s")) || parse_u64(argv[i + 1], number) < 0)
            return usage();
    }
    for (const struct fuzz_seed *s = fuzz_seeds; s->data; s++)
        add_input(s->data, s->len);
    if (fuzz_corpus)
        fuzz_corpus(add_input);
    if (!inputs.len)
        return usage();
    static const int signals[] = {SIGSEGV, SIGABRT, SIGILL, SIGTRAP, SIGBUS, SIGFPE};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], on_crash);
    time_t end = time(NULL) + (time_t)seconds;
    while (seconds ? time(NULL) < end : tried < rounds)
        try_number(first + tried++);
    printf("%llu inputs from %u seeds\n", (unsigned long long)tried, inputs.len);
    for (uint32_t i = 0; i < inputs.len; i++)
        free((char *)(uintptr_t)inputs.at[i].data);
    vec_done(&inputs);
    return 0;
}
