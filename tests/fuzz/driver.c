// A fuzz driver without a fuzzing engine: mutates the target's seeds with a seeded generator, so a
// failure is repeated by its number. Usage: fuzz_X [ROUNDS [SEED]] or fuzz_X - < INPUT.
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rand.h"
#include "base/text.h"

enum { INPUT_MAX = 4096, MUTATIONS_MAX = 8 };

static const char alphabet[] = "0123456789-:,._%[]+@?=#;\n\t /abcdefghijklmnopqrstuvwxyzKMGTPN*\"\\";

static char random_char(struct rand *r) {
    if (rand_below(r, 16) == 0)
        return (char)rand_below(r, 256);
    return alphabet[rand_below(r, sizeof alphabet - 1)];
}

static void mutate(struct rand *r, char *data, size_t *len) {
    size_t at = *len ? rand_below(r, *len) : 0;
    switch (rand_below(r, 5)) {
    case 0:  // change
        if (*len)
            data[at] = random_char(r);
        break;
    case 1:  // insert
        if (*len < INPUT_MAX) {
            memmove(data + at + 1, data + at, *len - at);
            data[at] = random_char(r);
            ++*len;
        }
        break;
    case 2:  // remove
        if (*len) {
            memmove(data + at, data + at + 1, *len - at - 1);
            --*len;
        }
        break;
    case 3: {  // repeat a piece
        size_t n = *len ? rand_below(r, *len - at) + 1 : 0;
        if (*len + n <= INPUT_MAX) {
            memmove(data + at + n, data + at, *len - at);
            *len += n;
        }
        break;
    }
    default:  // cut
        if (rand_below(r, 4) == 0)
            *len = at;
        break;
    }
}

static int one_from_stdin(void) {
    static uint8_t data[1 << 20];
    size_t n = fread(data, 1, sizeof data, stdin);
    return LLVMFuzzerTestOneInput(data, n);
}

int main(int argc, char **argv) {
    uint64_t rounds = 20000, seed = 1;
    size_t seeds = 0;
    if (argc > 1 && streq(argv[1], "-"))
        return one_from_stdin();
    if ((argc > 1 && parse_u64(argv[1], &rounds) < 0) || (argc > 2 && parse_u64(argv[2], &seed) < 0))
        return 2;
    while (fuzz_seeds[seeds])
        seeds++;
    for (uint64_t i = 0; i < rounds; i++) {
        struct rand r;
        rand_seed(&r, seed + i);
        const char *start = fuzz_seeds[rand_below(&r, seeds)];
        size_t len = strlen(start);
        char *data = malloc(INPUT_MAX * 2);
        if (!data)
            return 1;
        memcpy(data, start, len);
        for (uint64_t m = rand_below(&r, MUTATIONS_MAX + 1); m; m--)
            mutate(&r, data, &len);
        // An exact copy, so that a sanitizer sees a read past the end.
        uint8_t *exact = malloc(len ? len : 1);
        if (!exact)
            return 1;
        memcpy(exact, data, len);
        LLVMFuzzerTestOneInput(exact, len);
        free(exact);
        free(data);
    }
    return 0;
}
