// Fuzz target: lines of deliveries. Whatever is accepted cannot start a new header, command or host.
#include <assert.h>
#include <string.h>

#include "base/cleanup.h"
#include "driver.h"
#include "../delivery.h"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_SEED("{\"id\":7,\"kind\":\"mail\",\"to\":\"ana@example.org\",\"subject\":\"job "
              "7\",\"text\":\"ended\\n.\\n\"}"),
    FUZZ_SEED("{\"id\":8,\"kind\":\"webhook\",\"to\":\"https://hooks.example.org/x\",\"body\":\"{}\"}"),
    FUZZ_SEED("{\"id\":9,\"kind\":\"mail\",\"to\":\"root\",\"subject\":\"\xc3\xa9t\xc3\xa9\",\"text\":\"\"}"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf message = {0};
    struct delivery d = {0};
    struct error e = {0};
    if (notify_delivery_parse((const char *)data, size, &a, &d, &e) < 0) {
        assert(e.text[0]);
        return 0;
    }
    assert(!strpbrk(d.to, " \r\n<>\""));
    if (d.kind == DELIVERY_MAIL) {
        notify_mail_compose(&d, "acequia@localhost", "localhost", 0, &message);
        buf_addc(&message, 0);
        assert(!strstr(message.data, "\r\n.\r\n"));
        char *body = strstr(message.data, "\r\n\r\n");
        assert(body);
    }
    return 0;
}
