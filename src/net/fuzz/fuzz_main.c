// Runs a fuzz target without libFuzzer: the files given, or else mutations of the target's seeds,
// decided by one number so that a failure repeats: fuzz_x [-n rounds] [-s seed] [file...].
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rand.h"
#include "base/text.h"
#include "fuzz.h"

enum { INPUT_MAX = 64 * 1024, MUTATIONS_MAX = 8 };

static void mutate_once(struct buf *b, struct rand *r, const struct fuzz_seed *other) {
    size_t at = b->len ? rand_below(r, b->len) : 0;
    size_t span = b->len - at ? 1 + rand_below(r, b->len - at < 16 ? b->len - at : 16) : 0;
    static const char *const words[] = {"\r\n", "\n", ":", " ", "0", "ffffffff", "chunked", ",",
                                        "\x81", "\x7e", "\x7f\xff", "\0", "HTTP/1.1", ".",
                                        "Content-Length: 5\r\n", "Host: y\r\n", "\r\nA: b",
                                        "Transfer-Encoding: chunked\r\n"};
    char copy[16];
    switch (rand_below(r, 7)) {
    case 0:
        if (b->len)
            b->data[at] ^= (char)(1 << rand_below(r, 8));
        break;
    case 1:
        if (b->len)
            b->data[at] = (char)rand_u64(r);
        break;
    case 2:  // cut out
        memmove(b->data + at, b->data + at + span, b->len - at - span);
        b->len -= span;
        break;
    case 3: {  // put in
        const char *word = words[rand_below(r, sizeof words / sizeof *words)];
        size_t n = strlen(word) ? strlen(word) : 1;
        buf_reserve(b, n);
        memmove(b->data + at + n, b->data + at, b->len - at);
        memcpy(b->data + at, word, n);
        b->len += n;
        break;
    }
    case 4:  // repeat a piece at the end
        memcpy(copy, b->data + at, span);
        buf_add(b, copy, span);
        break;
    case 5:  // go on with another seed
        b->len = at;
        buf_add(b, other->data, other->len);
        break;
    default:
        b->len = at;
    }
}

static void run_mutations(uint64_t rounds, uint64_t seed) {
    struct rand r;
    rand_seed(&r, seed);
    size_t count = 0;
    while (fuzz_seeds[count].data)
        count++;
    cleanup_buf struct buf b = {0};
    for (uint64_t i = 0; i < rounds; i++) {
        const struct fuzz_seed *first = &fuzz_seeds[rand_below(&r, count)];
        b.len = 0;
        buf_add(&b, first->data, first->len);
        for (uint64_t m = rand_below(&r, MUTATIONS_MAX + 1); m > 0 && b.len < INPUT_MAX; m--)
            mutate_once(&b, &r, &fuzz_seeds[rand_below(&r, count)]);
        // An exact copy, so that a read past the end is seen.
        uint8_t *exact = malloc(b.len ? b.len : 1);
        if (!exact)
            abort();
        memcpy(exact, b.data, b.len);
        LLVMFuzzerTestOneInput(exact, b.len);
        free(exact);
    }
}

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    static uint8_t data[INPUT_MAX];
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    LLVMFuzzerTestOneInput(data, n);
    return 0;
}

int main(int argc, char **argv) {
    uint64_t rounds = 20000, seed = 1;
    int files = 0, failures = 0;
    for (int i = 1; i < argc; i++) {
        uint64_t *number = streq(argv[i], "-n") ? &rounds : streq(argv[i], "-s") ? &seed : NULL;
        if (!number) {
            files++;
            failures += run_file(argv[i]);
        } else if (++i == argc || parse_u64(argv[i], number) < 0) {
            fprintf(stderr, "usage: %s [-n rounds] [-s seed] [file...]\n", argv[0]);
            return 2;
        }
    }
    if (!files)
        run_mutations(rounds, seed);
    return failures ? 1 : 0;
}
