// Owns the grammar of ports.
#include "model/port.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "model/pattern.h"

int port_parse(const char *text, struct job_port *out, struct error *e) {
    struct job_port p = {.protocol = PORT_HTTP};
    const char *number = text;
    char shown[64];
    if (str_has_prefix(text, "http:")) {
        number += strlen("http:");
    } else if (str_has_prefix(text, "tcp:")) {
        number += strlen("tcp:");
        p.protocol = PORT_TCP;
    }
    str_printable(text, shown, sizeof shown);
    if (str_has_prefix(text, "unix:")) {
        p.path = text + strlen("unix:");
        if (!*p.path || strlen(p.path) > PORT_SOCKET_MAX || str_has_control_chars(p.path, strlen(p.path)))
            return error_set(
                e, EINVAL,
                "port: \"%s\" is not understood; write unix: and the path of a socket, at most %d "
                "bytes long",
                shown, PORT_SOCKET_MAX);
        int r = pattern_check(p.path, e);
        if (r < 0)
            return r;
        *out = p;
        return 0;
    }
    if (parse_u32(number, &p.number) < 0 || p.number > UINT16_MAX)
        return error_set(
            e, EINVAL,
            "port: \"%s\" is not understood; write a number up to 65535, http:NUMBER or tcp:NUMBER, "
            "with 0 for a free one, or unix:PATH",
            shown);
    *out = p;
    return 0;
}

int ports_check(const char *const *at, uint32_t len, struct error *e) {
    struct job_port ports[PORTS_PER_JOB];
    if (len > PORTS_PER_JOB)
        return error_set(e, E2BIG, "port: a job has at most %d", PORTS_PER_JOB);
    for (uint32_t i = 0; i < len; i++) {
        int r = port_parse(at[i], &ports[i], e);
        if (r < 0)
            return r;
        for (uint32_t k = 0; k < i; k++)
            if (ports[i].number && ports[k].number == ports[i].number)
                return error_set(e, EINVAL, "port: %u is given twice", ports[i].number);
    }
    return 0;
}

uint32_t port_number(const struct job_port *p, uint64_t job, uint32_t index) {
    return p->number ? p->number
                     : PORT_CHOSEN_FIRST + (uint32_t)((job * PORTS_PER_JOB + index) % PORT_CHOSEN_COUNT);
}

bool port_find(const char *const *at, uint32_t len, uint64_t job, uint32_t number,
               enum port_protocol *protocol) {
    struct job_port p;
    struct error e;
    for (uint32_t i = 0; i < len; i++)
        if (port_parse(at[i], &p, &e) == 0 && port_number(&p, job, i) == number) {
            *protocol = p.protocol;
            return true;
        }
    return false;
}
