// Every word ends within the input, and nothing stands behind the last: a password with a NUL inside is refused, not
// cut off.
#include "question.h"

#include <string.h>

int question_split(const char *input, size_t len, const char *words[static QUESTION_WORDS]) {
    size_t at = 0;
    for (int i = 0; i < QUESTION_WORDS; i++) {
        const char *end = at < len ? memchr(input + at, 0, len - at) : NULL;
        if (!end)
            return -1;
        words[i] = input + at;
        at = (size_t)(end - input) + 1;
    }
    return at == len && *words[0] && *words[1] ? 0 : -1;
}
