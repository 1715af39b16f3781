// Join tokens and the handshake key: what is accepted has exactly one text.
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "net/token.h"
#include "net/ws.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("aq1.0123456789abcdef."
              "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
              ".fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210\n"),
    FUZZ_SEED("dGhlIHNhbXBsZSBub25jZQ=="),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    struct token t;
    if (token_parse(text, &t, NULL) == 0) {
        char again[TOKEN_TEXT_LEN + 1];
        token_format(&t, again);
        FUZZ_CHECK(strstr(text, again));
    }
    char accept[WS_ACCEPT_LEN + 1];
    if (ws_accept(text, accept) == 0)
        FUZZ_CHECK(strlen(accept) == WS_ACCEPT_LEN);
    free(text);
    return 0;
}
