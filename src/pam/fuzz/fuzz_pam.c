// Fuzz target: the question that acequia-pam reads. What is accepted is the whole input again, word by word.
#include <string.h>

#include "../question.h"
#include "driver.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("acequia\0eva\0"
              "192.0.2.1\0secret\0"),
    FUZZ_SEED("login\0root\0\0\0"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *words[QUESTION_WORDS];
    size_t total = 0;
    if (question_split((const char *)data, size, words) < 0)
        return 0;
    for (int i = 0; i < QUESTION_WORDS; i++) {
        FUZZ_CHECK(words[i] == (const char *)data + total);
        total += strlen(words[i]) + 1;
    }
    FUZZ_CHECK(total == size && *words[0] && *words[1]);
    return 0;
}
